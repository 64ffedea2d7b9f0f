//! Variables that the API server cannot have: what is known of gangs, cards and queues. Each is computed when an expression asks for
//! it, once for each request.

use portcullis_cel::{Activation, Env};

use crate::request::Request;
use crate::world::World;

/// Declares the variables and their types.
pub(crate) fn declare(env: Env) -> Env {
    env
}

/// The variables of one request.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    _request: std::cell::OnceCell<Request<'a>>,
    _world: &'a World,
}

impl<'a> Facts<'a> {
    /// Nothing is computed yet.
    pub(crate) fn new(request: &Request<'a>, world: &'a World) -> Self {
        Self { _request: std::cell::OnceCell::from(*request), _world: world }
    }

    /// Binds what [`declare`] declares.
    pub(crate) fn bind<'b>(&'b self, activation: Activation<'b>) -> Activation<'b>
    where
        'a: 'b,
    {
        activation
    }
}
