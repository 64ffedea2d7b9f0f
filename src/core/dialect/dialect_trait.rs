//! The trait that each stack implements.

use serde_json::Value;

use super::group::{GroupKind, GroupResource};
use super::group_event::{GroupEvent, GroupEventContext};
use super::group_reader::GroupReader;
use super::group_status::{GroupStatus, StoredStatus};
use super::membership::{LinkStrength, Membership};
use super::membership_review::MembershipReview;
use super::quorum::Quorum;
use crate::model::{DialectId, GangId};
use crate::objects::view::PodView;

/// How one stack names gangs, and what it writes to its group objects.
pub(crate) trait Dialect: Sync {
    /// The identifier of the dialect.
    fn id(&self) -> DialectId;
    /// The pod field that names the gang, for messages.
    fn field(&self) -> &'static str;
    /// The pod field that names the subgroup or role, for messages. The default is [`Dialect::field`].
    fn role_field(&self) -> &'static str {
        self.field()
    }
    /// The kinds of group object, in order of precedence. Empty where the stack has none.
    fn group_resources(&self) -> &'static [GroupResource] {
        &[]
    }
    /// The gang that the keys of this dialect name. Keys that admission would repair are read as repaired.
    fn membership(&self, pod: &PodView<'_>) -> Option<Membership>;
    /// The same membership, with repairs, warnings and contradictions for admission.
    fn review(&self, pod: &PodView<'_>) -> MembershipReview {
        MembershipReview { membership: self.membership(pod), ..MembershipReview::default() }
    }
    /// Whether a user named this gang, or a controller added it.
    fn link_strength(&self, gang: &GangId) -> LinkStrength {
        let _ = gang;
        LinkStrength::Explicit
    }
    /// The name of the group object that describes this gang, where one object describes several gangs.
    fn template_group<'g>(&self, gang: &'g str) -> Option<&'g str> {
        let _ = gang;
        None
    }
    /// Reads a group object and adds each of its gangs to `reader`.
    ///
    /// # Errors
    /// A sentence that names the field.
    fn read_group(&self, reader: &mut GroupReader<'_, '_>) -> Result<(), String> {
        let _ = reader;
        Ok(())
    }
    /// Whether the quorum of a group object contradicts the quorum that a pod declares.
    fn contradicts(&self, group: &Quorum, pod: &Quorum) -> bool {
        group != pod
    }
    /// The pod key that declares the number of members; `None` where only a group object can.
    fn size_key(&self) -> Option<&'static str> {
        None
    }
    /// `status` of the group object in the words of this stack; `None` where nothing is written.
    fn status(&self, kind: GroupKind, status: &GroupStatus) -> Option<Value> {
        let _ = (kind, status);
        None
    }
    /// The event to record on the group object, in the words of this stack; `None` where the stack has no
    /// such event.
    fn event(&self, kind: GroupKind, context: &GroupEventContext<'_>) -> Option<GroupEvent> {
        let _ = kind;
        context.event()
    }
    /// Whether the stored status must stay as it is, whatever happens to the gang afterwards.
    fn is_status_final(&self, stored: &StoredStatus) -> bool {
        let _ = stored;
        false
    }
}
