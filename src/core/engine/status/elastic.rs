//! What the status of an elastic gang says about the owners of its pods.

use crate::engine::members::MemberCounts;
use crate::engine::state::{EngineView, Gang};
use crate::engine::status::conditions::ElasticCondition;

impl Gang {
    /// Why an elastic gang is not planned, as a sentence.
    pub(super) fn owners_unknown_reason(
        &self,
        view: &EngineView<'_>,
        counts: &MemberCounts,
    ) -> Option<String> {
        let elastic_state = self.elastic_state.as_deref()?;
        if self.are_owners_known(view, counts) {
            return None;
        }
        let failure = elastic_state.read_failure.as_ref().map(|(failure, _)| failure.to_string());
        let surplus = || self.tally_owners(elastic_state, counts).surplus;
        let reading = || "the owners of its pods are being read".to_owned();
        Some(failure.or_else(surplus).unwrap_or_else(reading))
    }

    /// The content of the condition `Elastic`.
    pub(super) fn elastic_condition(&self, view: &EngineView<'_>, counts: &MemberCounts) -> ElasticCondition {
        let (Some(elastic_state), Some(own)) =
            (self.elastic_state.as_deref(), self.own_group(view.group_objects))
        else {
            return ElasticCondition::Absent;
        };
        let holds = elastic_state.owners_counted;
        if let Some((failure, _)) = &elastic_state.read_failure {
            let until = if elastic_state.peak_running.is_some() {
                "its last answer counts"
            } else {
                "no member starts before an answer"
            };
            let message = format!("{failure}; retrying, {until}");
            return ElasticCondition::Known { holds, reason: "OwnersUnread", message };
        }
        let tally = self.tally_owners(elastic_state, counts);
        if tally.unread || elastic_state.is_reading() {
            return ElasticCondition::Unchanged;
        }
        let source = own
            .object_ref()
            .map_or("its pods say".to_owned(), |object| format!("{} {} says", object.kind, object.name));
        let (least, wanted) = (own.quorum.min_members(), tally.wanted());
        if tally.owners.is_empty() {
            let message = format!(
                "none of its pods belongs to a Deployment, ReplicaSet, StatefulSet or Job: its size is {least}, as {source}"
            );
            return ElasticCondition::Known { holds: false, reason: "NoOwners", message };
        }
        let owners = tally.summary();
        let (reason, message) = if holds {
            (
                "OwnersCounted",
                format!("takes {wanted} members, as their owners want: {owners} ({source} {least})"),
            )
        } else {
            let until = "until its owners have wanted as many once";
            ("FirstStart", format!("takes {least} members, as {source}, {until}: {owners}"))
        };
        ElasticCondition::Known { holds, reason, message }
    }

    /// What to add to the status of a gang whose owners want fewer members than it needs.
    pub(super) fn owners_below_min_member(
        &self,
        view: &EngineView<'_>,
        counts: &MemberCounts,
    ) -> Option<String> {
        let elastic_state = self.elastic_state.as_deref()?;
        let tally = self.tally_owners(elastic_state, counts);
        let least = self.own_group(view.group_objects)?.quorum.min_members();
        let wanted = tally.wanted();
        let applies = !elastic_state.owners_counted
            && !tally.unread
            && !tally.owners.is_empty()
            && counts.live >= wanted
            && wanted < least;
        let owners = tally.summary();
        applies.then(|| {
            format!("its owners make {wanted} ({owners}): it is not complete before they want {least}")
        })
    }
}
