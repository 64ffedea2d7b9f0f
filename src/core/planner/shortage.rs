//! The shortage of a gang in total: what its members request of one resource, and what is free on its
//! feasible nodes.

use super::attempt::PlacementAttempt;
use super::candidates::ResolvedShapes;
use super::overlay::SnapshotOverlay;
use super::requirements::PodRequirements;
use super::resource_kind::ResourceKind;
use crate::dialect::Quorum;
use crate::snapshot::{CardState, NodeCapacity, PackedCards, PackedNode};

/// What one pod requests of a resource: per card of `node` for VRAM, else per node.
pub(super) fn requested(
    resource: ResourceKind<'_>,
    need: &PodRequirements<'_>,
    overlay: &SnapshotOverlay<'_>,
    node: u32,
) -> u64 {
    match resource {
        ResourceKind::Cpu => need.cpu,
        ResourceKind::Memory => need.memory,
        ResourceKind::EphemeralStorage => need.ephemeral_storage,
        ResourceKind::Gpus => need.gpus,
        ResourceKind::Extended(name) => need.shape.requests.extended(name),
        ResourceKind::Vram => need.on_card(&overlay.state(node as usize).node),
    }
}

/// Whether the members that the quorum needs request more of a resource than is free in total. Then no
/// placement exists.
pub(super) fn is_surely_short<'a>(
    attempt: &PlacementAttempt<'a>,
    shapes: &ResolvedShapes<'a>,
    overlay: &SnapshotOverlay<'a>,
) -> bool {
    // Subgroup quorums do not determine which members are needed.
    matches!(attempt.request.quorum, Quorum::Count(_))
        && [ResourceKind::Vram, ResourceKind::Gpus, ResourceKind::Cpu, ResourceKind::Memory]
            .into_iter()
            .any(|resource| GangShortage::new(attempt, shapes, overlay, resource).is_short())
}

/// What the gang requests of one resource in total, and what is free of it on the nodes that its members may
/// use.
#[derive(Default)]
pub(super) struct GangShortage {
    /// Requests of the members that the quorum needs, ascending, without zeros.
    pub(super) requests: Vec<u64>,
    /// Sum of `requests`.
    pub(super) requested: u128,
    /// Sum of what is free.
    pub(super) free: u128,
    /// Number of cards (for VRAM) or nodes with a free amount above zero.
    places: u32,
}

impl GangShortage {
    pub(super) fn new<'a>(
        attempt: &PlacementAttempt<'a>,
        shapes: &ResolvedShapes<'a>,
        overlay: &SnapshotOverlay<'a>,
        resource: ResourceKind<'_>,
    ) -> Self {
        let mut shortage = Self::default();
        let smallest_card = shortage.add_free(attempt, shapes, overlay, resource);
        shortage.set_requests(attempt, shapes, overlay, resource, smallest_card);
        shortage
    }

    /// Adds up what is free, and returns the node with the smallest cards among those counted.
    fn add_free<'a>(
        &mut self,
        attempt: &PlacementAttempt<'a>,
        shapes: &ResolvedShapes<'a>,
        overlay: &SnapshotOverlay<'a>,
        resource: ResourceKind<'_>,
    ) -> u32 {
        let snapshot = overlay.snapshot();
        let card_size = |capacity: Option<&NodeCapacity>| {
            capacity.and_then(|capacity| capacity.gpus.vram_each).map_or(u64::MAX, |mib| mib.0)
        };
        let card_sizes: Vec<u64> = snapshot.classes().capacities().map(card_size).collect();
        let requests_it = |need: &&PodRequirements<'_>| match resource {
            ResourceKind::Vram => need.share.is_some(),
            _ => requested(resource, need, overlay, 0) > 0,
        };
        let requesters: Vec<&PodRequirements<'_>> =
            attempt.shapes.iter().map(|shape| shapes.need(shape.need)).filter(requests_it).collect();
        let mut smallest = (u64::MAX, 0);
        for (index, (packed, cards)) in
            (0_u32..).zip(snapshot.packed_nodes().iter().zip(snapshot.packed_cards()))
        {
            let may_use = |need: &&PodRequirements<'_>| {
                need.class_is_feasible(packed)
                    && (!need.selects_by_node || need.check_class(overlay.state(index as usize)).is_ok())
            };
            if requesters.iter().any(may_use)
                && self.add_free_of_node(resource, overlay, index as usize, packed, cards)
            {
                smallest = smallest.min((card_sizes[packed.capacity as usize], index));
            }
        }
        smallest.1
    }

    /// Adds what is free on one node; true when its cards were counted.
    fn add_free_of_node(
        &mut self,
        resource: ResourceKind<'_>,
        overlay: &SnapshotOverlay<'_>,
        index: usize,
        packed: &PackedNode,
        cards: &PackedCards,
    ) -> bool {
        let mut add = |free: u64| {
            self.free += u128::from(free);
            self.places += u32::from(free > 0);
        };
        // The packed numbers are those of the snapshot: they do not apply to a node that the overlay has
        // modified.
        let use_packed = !overlay.is_modified(index);
        let free = overlay.free_resources(index);
        match resource {
            ResourceKind::Cpu => add(if use_packed { packed.cpu } else { free.cpu }),
            ResourceKind::Memory => add(if use_packed { packed.memory } else { free.memory }),
            ResourceKind::EphemeralStorage => add(free.ephemeral_storage),
            ResourceKind::Gpus if !packed.allows_whole_gpus => {}
            ResourceKind::Gpus if use_packed => add(u64::from(packed.gpus)),
            ResourceKind::Gpus if free.shares > 0 => {}
            ResourceKind::Gpus => add(free.gpus),
            ResourceKind::Extended(name) => add(free.extended.get(name).copied().unwrap_or(0)),
            ResourceKind::Vram if packed.card_state != CardState::Open => {}
            ResourceKind::Vram if use_packed && !packed.cards_not_packed => {
                cards.iter().for_each(|free| add(u64::from(*free)));
                return true;
            }
            ResourceKind::Vram if free.whole > 0 => {}
            ResourceKind::Vram => {
                free.cards.iter().for_each(|free| add(*free));
                return true;
            }
        }
        false
    }

    /// Sets the requests. A fraction of a card is measured on the smallest card: no placement needs less.
    fn set_requests<'a>(
        &mut self,
        attempt: &PlacementAttempt<'a>,
        shapes: &ResolvedShapes<'a>,
        overlay: &SnapshotOverlay<'a>,
        resource: ResourceKind<'_>,
        smallest_card: u32,
    ) {
        for shape in &attempt.shapes {
            let need = shapes.need(shape.need);
            let devices =
                if resource == ResourceKind::Vram { need.share.map_or(1, |share| share.devices) } else { 1 };
            let each = requested(resource, need, overlay, smallest_card).saturating_mul(u64::from(devices));
            self.requests.extend((0..shape.members).map(|_| each));
        }
        self.requests.sort_unstable();
        self.requests.truncate(attempt.min_needed());
        self.requests.retain(|request| *request > 0);
        self.requested = self.requests.iter().map(|request| u128::from(*request)).sum();
    }

    /// Whether the gang requests more than is free in total.
    pub(super) fn is_short(&self) -> bool {
        self.requested > self.free
    }

    /// `short of 5000 MiB VRAM: 3 members need 4000 + 8000 + 8000 MiB, 15000 MiB free on 1 card`. `None` for
    /// one member, and when the total is not what is missing.
    pub(super) fn describe(
        &self,
        attempt: &PlacementAttempt<'_>,
        resource: ResourceKind<'_>,
        fragmented: bool,
    ) -> Option<String> {
        if self.requests.len() < 2 || !(self.is_short() || fragmented) {
            return None;
        }
        let at_least = if attempt.min_needed() < attempt.waiting() { "at least " } else { "" };
        let (members, sum) = (self.requests.len(), resource.format_sum(&self.requests));
        let place = if resource == ResourceKind::Vram { "card" } else { "node" };
        let places = self.places;
        let s = if places == 1 { "" } else { "s" };
        let free = resource.format(saturate(self.free));
        let totals = format!("{at_least}{members} members need {sum}, {free} free on {places} {place}{s}");
        Some(if self.is_short() {
            let missing = saturate(self.requested - self.free);
            format!("short of {}: {totals}", resource.format_with_name(missing))
        } else {
            format!("each member fits by itself, but not all together: {totals}")
        })
    }

    /// `5000 MiB more VRAM (15000 of 20000 MiB free)`.
    pub(super) fn describe_missing(&self, resource: ResourceKind<'_>) -> String {
        let part = resource.format_part(saturate(self.free), saturate(self.requested));
        format!("{} ({part} free)", resource.format_missing(saturate(self.requested - self.free)))
    }
}

/// A sum as an amount.
pub(super) fn saturate(sum: u128) -> u64 {
    u64::try_from(sum).unwrap_or(u64::MAX)
}
