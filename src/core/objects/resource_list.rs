//! Reads resource lists (`requests`, `limits`, `allocatable`, `minResources`) into [`Resources`].

use super::text::{Entries, Scalar};
use crate::model::{Bytes, MilliCpu, Quantity, Resources, str};

/// Reads a resource list. `path` names the field in errors.
pub(crate) fn read_resources(list: &Entries<'_, Scalar<'_>>, path: &str) -> Result<Resources, String> {
    let mut resources = Resources::default();
    for (name, quantity) in list.iter() {
        read_resource(&mut resources, name, quantity, path)?;
    }
    Ok(resources)
}

/// Reads one entry of a resource list into `resources`. `pods` is skipped: nodes count pods separately.
pub(crate) fn read_resource(
    resources: &mut Resources,
    name: &str,
    quantity: &Scalar<'_>,
    path: &str,
) -> Result<(), String> {
    let quantity = Quantity::parse(&quantity.0).map_err(|e| format!("{path}[{name}]: {e}"))?;
    match name {
        "cpu" => resources.cpu = MilliCpu(quantity.millis()),
        "memory" => resources.memory = Bytes(quantity.units()),
        "ephemeral-storage" => resources.ephemeral_storage = Bytes(quantity.units()),
        "pods" => {}
        _ => {
            if quantity.units() > 0 {
                resources.extended.insert(str(name), quantity.units());
            }
        }
    }
    Ok(())
}
