//! Why a gang waits: the numbers behind a refusal, as counts and as one sentence.

use std::collections::BTreeMap;

use super::board::Board;
use super::gang::{Attempt, Outcome, Shapes};
use super::minimum;
use super::need::{Denial, Need};
use super::remedy;
use super::report::{Explanation, PlanningOutcome, UnschedulableReason};
use super::survey::{Fact, Survey};
use super::types::Counts;
use super::words::{Amount, refusal};
use crate::dialect::Quorum;
use crate::model::Reason;
use crate::snapshot::{CardState, NodeCapacity};

/// The verdict on a gang, with what was placed still on the board.
pub(super) fn verdict<'a>(
    attempt: &Attempt<'a>,
    shapes: &Shapes<'a>,
    board: &mut Board<'a>,
    outcome: &Outcome,
) -> PlanningOutcome {
    let members = u32::try_from(outcome.spots.len()).unwrap_or(u32::MAX);
    let left = attempt.waiting() - outcome.spots.len();
    if members > 0 {
        let left = (left > 0).then(|| explain(attempt, shapes, board, outcome));
        return PlanningOutcome::Placed { members, unplaced: left };
    }
    if left == 0 && attempt.request.quorum.is_satisfied(&attempt.request.active) {
        return PlanningOutcome::Placed { members: 0, unplaced: None };
    }
    PlanningOutcome::Waiting(explain(attempt, shapes, board, outcome))
}

/// The member that stands for all that have no place.
pub(super) struct Focus {
    /// Index into the attempt's shapes.
    pub(super) shape: usize,
    /// Index into the request's members.
    pub(super) member: usize,
    /// No node has room for it even by itself.
    pub(super) alone: bool,
}

fn explain<'a>(
    attempt: &Attempt<'a>,
    shapes: &Shapes<'a>,
    board: &mut Board<'a>,
    outcome: &Outcome,
) -> Explanation {
    let nodes = u32::try_from(board.snapshot().states().len()).unwrap_or(u32::MAX);
    let plain = |reason, sentence: String, waiting_for: &str, remedy: Option<&str>| Explanation {
        reason,
        message: sentence,
        waiting_for: waiting_for.to_owned(),
        remedy: remedy.map(str::to_owned),
        nodes,
        infeasible_nodes: BTreeMap::new(),
    };
    if let Some(sentence) = gathering(attempt) {
        return plain(Reason::Gathering, sentence, "more pods", None);
    }
    if nodes == 0 {
        let sentence = "the cluster has no nodes".to_owned();
        return plain(Reason::NoNodes, sentence, "a node", Some("when a node joins the cluster"));
    }
    if outcome.below_minimum {
        let lacks = minimum::lacking(attempt.request, board);
        if let Some(why) = minimum::explain(attempt, shapes, board, &lacks) {
            return why;
        }
    }
    let Some(focus) = focus(attempt, outcome) else {
        return plain(Reason::SearchExhausted, "no place was found".to_owned(), "room", None);
    };
    // By itself: as the cluster is. Together: with the members that do fit in their places.
    let together = outcome.spots.is_empty() && !focus.alone;
    if together {
        attempt.put(&outcome.reach, shapes, board);
    }
    let need = shapes.need(attempt.shapes[focus.shape].need);
    let survey = Survey::new(need, board);
    if together {
        attempt.take_back(&outcome.reach, shapes, board);
    }
    let refusals = count(&survey, need);
    let Some((denial, fact)) = survey.main() else {
        return plain(Reason::SearchExhausted, "no place was found".to_owned(), "room", None);
    };
    let amount = Amount::of(denial, need);
    let shortage = Shortage::new(attempt, shapes, board, amount);
    let reason = if outcome.exhausted {
        Reason::SearchExhausted
    } else if together && amount.is_some() && !shortage.is_short() {
        Reason::Fragmented
    } else {
        reason_for(denial, need, &survey, board)
    };
    let never = focus.alone && survey.facts.values().all(|fact| fact.usable == 0);
    let mut parts = Vec::new();
    if outcome.exhausted {
        parts.push("the search stopped before it could be sure that nothing fits".to_owned());
    }
    if !outcome.spots.is_empty() {
        parts.push(format!("{} of {} waiting members have a place", outcome.spots.len(), attempt.waiting()));
    }
    if let (Some(amount), true) = (amount, never) {
        parts.push(impossible(amount, need, fact, board));
    } else if let Some(amount) = amount {
        parts.extend(shortage.sentence(attempt, amount, reason == Reason::Fragmented));
        if focus.alone || !outcome.spots.is_empty() {
            parts.push(one_place(amount, need, fact, board, shortage.is_short() && attempt.waiting() > 1));
        }
    }
    if together {
        let member = &attempt.request.members[focus.member].key;
        let reach = outcome.reach.len();
        parts.push(format!("room for {reach} of {} members, none for {member}", attempt.waiting()));
    }
    if outcome.spots.is_empty() {
        let sum = u64::try_from(shortage.sum).unwrap_or(u64::MAX);
        parts.extend(minimum::beside(attempt.request, board, amount.map(|amount| (amount, sum))));
    }
    let refused = histogram(&survey, need, board);
    let waiting_for = match amount {
        Some(amount) if never => format!("{}, which no node has", in_one_place(amount, need, fact, board)),
        Some(amount) if shortage.is_short() && shortage.needs.len() > 1 && !focus.alone => {
            let whole = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
            let part = amount.part(whole(shortage.free), whole(shortage.sum));
            format!("{} ({part} free)", amount.more(whole(shortage.sum - shortage.free)))
        }
        Some(amount) => {
            let place = in_one_place(amount, need, fact, board);
            let name = &board.state(fact.node as usize).node.name;
            format!("{place} (most free {}, node {name})", amount.say(fact.free))
        }
        None => format!("a node that takes its pods ({refused})"),
    };
    parts.push(format!("{}/{nodes} nodes: {refused}", survey.fitting));
    let found = remedy::find(attempt, shapes, board, outcome, &focus, &survey, never);
    Explanation {
        reason,
        message: parts.join("; "),
        waiting_for,
        remedy: found,
        nodes,
        infeasible_nodes: refusals,
    }
}

/// Too few members for the quorum, whatever the room.
fn gathering(attempt: &Attempt<'_>) -> Option<String> {
    let request = attempt.request;
    let mut counts: Counts = request.active.clone();
    for kind in &attempt.kinds {
        let count = counts.entry(kind.role.clone()).or_default();
        *count = count.saturating_add(u32::try_from(kind.members.len()).unwrap_or(u32::MAX));
    }
    if request.quorum.is_satisfied(&counts) {
        return None;
    }
    let here: u64 = counts.values().map(|n| u64::from(*n)).sum();
    Some(match &request.quorum {
        Quorum::Count(least) => format!("{here} of {least} members are here"),
        Quorum::Total { min_members: least, .. } if here < u64::from(*least) => {
            format!("{here} of {least} members are here")
        }
        Quorum::Groups { .. } | Quorum::Total { .. } => {
            format!("{here} members are here, and a subgroup has too few of them")
        }
    })
}

/// A shape that fits nowhere by itself, else the first that was left over.
fn focus(attempt: &Attempt<'_>, outcome: &Outcome) -> Option<Focus> {
    let placed = if outcome.spots.is_empty() { &outcome.reach } else { &outcome.spots };
    let placed: std::collections::BTreeSet<usize> = placed.iter().map(|spot| spot.member).collect();
    let first_left = |kind: &super::gang::Kind| kind.members.iter().copied().find(|m| !placed.contains(m));
    let alone = attempt.kinds.iter().filter(|kind| attempt.shapes[kind.shape].cap == 0);
    let focus = |kind: &super::gang::Kind, alone| {
        first_left(kind).map(|member| Focus { shape: kind.shape, member, alone })
    };
    alone
        .into_iter()
        .find_map(|kind| focus(kind, true))
        .or_else(|| attempt.kinds.iter().find_map(|kind| focus(kind, false)))
}

fn reason_for(denial: Denial, need: &Need<'_>, survey: &Survey, board: &Board<'_>) -> Reason {
    match denial {
        // Under `sharing: any` there is no such thing as a shared node: cards are what is missing.
        Denial::Cards(CardState::NoCards)
            if board.snapshot().sharing() == crate::snapshot::SharingMode::Any =>
        {
            Reason::InsufficientVram
        }
        denial => refusal(denial, need, survey).reason(),
    }
}

fn count(survey: &Survey, need: &Need<'_>) -> BTreeMap<UnschedulableReason, u32> {
    let mut refusals = BTreeMap::new();
    for (denial, fact) in &survey.facts {
        *refusals.entry(refusal(*denial, need, survey)).or_default() += fact.nodes;
    }
    refusals
}

/// `8000 MiB on one card`, `4 cores on one node`.
fn in_one_place(amount: Amount<'_>, need: &Need<'_>, fact: &Fact, board: &Board<'_>) -> String {
    let wanted = amount.say(wanted(amount, need, board, fact.node));
    match (amount, need.share.map_or(1, |share| share.devices)) {
        (Amount::Vram, 1) => format!("{wanted} on one card"),
        (Amount::Vram, devices) => format!("{wanted} on each of {devices} cards"),
        _ => format!("{wanted} on one node"),
    }
}

/// `2 untolerated taint {test: blocked}, 1 insufficient cpu (free 3 of 4 cores)`: most nodes first.
fn histogram(survey: &Survey, need: &Need<'_>, board: &Board<'_>) -> String {
    let mut lines: BTreeMap<String, (u32, Denial, Option<String>)> = BTreeMap::new();
    for (denial, fact) in &survey.facts {
        let said = refusal(*denial, need, survey).to_string();
        let line = lines.entry(said).or_insert((0, *denial, None));
        line.0 += fact.nodes;
        if *denial == Denial::Pods {
            line.2 = Some(format!(" (node {} takes {})", board.state(fact.node as usize).node.name, fact.of));
        }
        line.2 = line.2.take().or_else(|| {
            let amount = Amount::of(*denial, need)?;
            let part = amount.part(fact.free, fact.of);
            let most = if fact.nodes == 1 { "free" } else { "most free" };
            let mut place = String::new();
            if fact.nodes > 1 {
                place = format!(", node {}", board.state(fact.node as usize).node.name);
            }
            if amount == Amount::Vram {
                place = format!("{place}, card {}", fact.card);
            }
            Some(format!(" ({most} {part}{place})"))
        });
    }
    let mut lines: Vec<_> = lines.into_iter().collect();
    lines.sort_by(|(a_said, a), (b_said, b)| (b.0, a.1, a_said).cmp(&(a.0, b.1, b_said)));
    let lines: Vec<String> = lines
        .into_iter()
        .map(|(said, (number, _, part))| format!("{number} {said}{}", part.unwrap_or_default()))
        .collect();
    lines.join(", ")
}

/// What one member needs in one place, and the most there is in one.
fn one_place(amount: Amount<'_>, need: &Need<'_>, fact: &Fact, board: &Board<'_>, told: bool) -> String {
    let state = board.state(fact.node as usize);
    let wanted = wanted(amount, need, board, fact.node);
    let free = amount.say(fact.free);
    let name = &state.node.name;
    let short = if told || wanted <= fact.free {
        String::new()
    } else {
        format!("short of {}: ", amount.name(wanted - fact.free))
    };
    let devices = need.share.map_or(0, |share| share.devices);
    match amount {
        Amount::Vram if devices > 1 => {
            let each = amount.say(wanted);
            let fitting = state_cards(board, fact.node, wanted);
            format!(
                "needs {each} on each of {devices} cards of one node; node {name} has {fitting} such cards"
            )
        }
        Amount::Vram => {
            let card = fact.card;
            format!(
                "{short}needs {} on one card, most free is {free} (node {name}, card {card})",
                amount.say(wanted)
            )
        }
        _ => format!("{short}needs {} on one node, most free is {free} (node {name})", amount.say(wanted)),
    }
}

fn state_cards(board: &Board<'_>, node: u32, each: u64) -> usize {
    board.room(node as usize).cards.iter().filter(|free| **free >= each).count()
}

/// No node could ever hold it.
fn impossible(amount: Amount<'_>, need: &Need<'_>, fact: &Fact, board: &Board<'_>) -> String {
    let (largest, node) = fact.largest;
    let name = &board.state(node as usize).node.name;
    let wanted = wanted(amount, need, board, node);
    let devices = need.share.map_or(0, |share| share.devices);
    if amount == Amount::Vram && wanted <= largest {
        let cards = board.state(node as usize).node.gpus.cards;
        return format!("no node has {devices} cards to share; node {name} has {cards}");
    }
    let (said, most) = (amount.say(wanted), amount.say(largest));
    match amount {
        Amount::Vram => format!("no node has a card of {said}; the largest is {most} (node {name})"),
        _ => format!("no node that takes the pod has {said}; the most is {most} (node {name})"),
    }
}

/// What one pod of this need takes of an amount, on one card or on the node.
pub(super) fn wanted(amount: Amount<'_>, need: &Need<'_>, board: &Board<'_>, node: u32) -> u64 {
    match amount {
        Amount::Cpu => need.cpu,
        Amount::Memory => need.memory,
        Amount::EphemeralStorage => need.ephemeral_storage,
        Amount::Gpus => need.gpus,
        Amount::Extended(name) => need.shape.requests.extended(name),
        Amount::Vram => need.on_card(&board.state(node as usize).node),
    }
}

/// Whether so many members as the quorum needs ask for more of something than is free in all: then no placement exists,
/// however clever.
pub(super) fn surely_short<'a>(attempt: &Attempt<'a>, shapes: &Shapes<'a>, board: &Board<'a>) -> bool {
    // With subgroups it is not known which members are needed.
    matches!(attempt.request.quorum, Quorum::Count(_))
        && [Amount::Vram, Amount::Gpus, Amount::Cpu, Amount::Memory]
            .into_iter()
            .any(|amount| Shortage::new(attempt, shapes, board, Some(amount)).is_short())
}

/// What the gang needs of something in all, and what is free of it where the gang may go.
struct Shortage {
    /// Of each member that counts, ascending by size; those that need none are left out.
    needs: Vec<u64>,
    sum: u128,
    free: u128,
    /// How many places (cards or nodes) have any of it free.
    places: u32,
}

impl Shortage {
    fn new<'a>(
        attempt: &Attempt<'a>,
        shapes: &Shapes<'a>,
        board: &Board<'a>,
        amount: Option<Amount<'_>>,
    ) -> Self {
        let mut shortage = Self { needs: Vec::new(), sum: 0, free: 0, places: 0 };
        let Some(amount) = amount else { return shortage };
        let snapshot = board.snapshot();
        // Fractions are measured on the smallest card: no less than that is needed.
        let mut smallest = (u64::MAX, 0);
        let size = |capacity: Option<&NodeCapacity>| {
            capacity.and_then(|capacity| capacity.gpus.vram_each).map_or(u64::MAX, |mib| mib.0)
        };
        let sizes: Vec<u64> = snapshot.classes().capacities().map(size).collect();
        let asks = |need: &Need<'_>| match amount {
            Amount::Vram => need.share.is_some(),
            _ => wanted(amount, need, board, 0) > 0,
        };
        let askers: Vec<&Need<'_>> =
            attempt.shapes.iter().map(|shape| shapes.need(shape.need)).filter(|need| asks(need)).collect();
        for (index, (hot, row)) in (0_u32..).zip(snapshot.hot().iter().zip(snapshot.rows())) {
            let place = index as usize;
            let may = |need: &&Need<'_>| {
                need.class_admits(hot) && (!need.choice_by_node || need.admitted(board.state(place)).is_ok())
            };
            if !askers.iter().any(may) {
                continue;
            }
            let mut add = |free: u64| {
                shortage.free += u128::from(free);
                shortage.places += u32::from(free > 0);
            };
            let packed = !board.is_touched(place);
            match amount {
                Amount::Cpu if packed => add(hot.cpu),
                Amount::Cpu => add(board.room(place).cpu),
                Amount::Memory if packed => add(hot.memory),
                Amount::Memory => add(board.room(place).memory),
                Amount::EphemeralStorage => add(board.room(place).ephemeral_storage),
                Amount::Gpus if !hot.takes_whole => {}
                Amount::Gpus if packed => add(u64::from(hot.gpus)),
                Amount::Gpus if board.room(place).shares > 0 => {}
                Amount::Gpus => add(board.room(place).gpus),
                Amount::Extended(name) => add(board.room(place).extended.get(name).copied().unwrap_or(0)),
                Amount::Vram if hot.card_state != CardState::Open => {}
                Amount::Vram if packed && !hot.long => {
                    row.iter().for_each(|free| add(u64::from(*free)));
                    smallest = smallest.min((sizes[hot.capacity as usize], index));
                }
                Amount::Vram if board.room(place).whole > 0 => {}
                Amount::Vram => {
                    board.room(place).cards.iter().for_each(|free| add(*free));
                    smallest = smallest.min((sizes[hot.capacity as usize], index));
                }
            }
        }
        let reference = smallest.1;
        let mut needs: Vec<u64> = Vec::new();
        for shape in &attempt.shapes {
            let need = shapes.need(shape.need);
            let devices =
                if amount == Amount::Vram { need.share.map_or(1, |share| share.devices) } else { 1 };
            let each = wanted(amount, need, board, reference).saturating_mul(u64::from(devices));
            needs.extend((0..shape.members).map(|_| each));
        }
        needs.sort_unstable();
        needs.truncate(attempt.needed());
        needs.retain(|need| *need > 0);
        shortage.sum = needs.iter().map(|need| u128::from(*need)).sum();
        shortage.needs = needs;
        shortage
    }

    fn is_short(&self) -> bool {
        self.sum > self.free
    }

    /// `short of 5000 MiB VRAM: 3 members need 4000 + 8000 + 8000 MiB, 15000 MiB is free`. `None` for one member.
    fn sentence(&self, attempt: &Attempt<'_>, amount: Amount<'_>, fragmented: bool) -> Option<String> {
        if self.needs.len() < 2 || !(self.is_short() || fragmented) {
            return None;
        }
        let number = |amount: u128| u64::try_from(amount).unwrap_or(u64::MAX);
        let least = if attempt.needed() < attempt.waiting() { "at least " } else { "" };
        let (members, list) = (self.needs.len(), self.list(amount));
        let place = if amount == Amount::Vram { "card" } else { "node" };
        let places = self.places;
        let on = format!("{places} {place}{}", if places == 1 { "" } else { "s" });
        let free = amount.say(number(self.free));
        let all = format!("{least}{members} members need {list}, {free} free on {on}");
        Some(if self.is_short() {
            format!("short of {}: {all}", amount.name(number(self.sum - self.free)))
        } else {
            format!("each member fits by itself, but not all together: {all}")
        })
    }

    fn list(&self, amount: Amount<'_>) -> String {
        list(&self.needs, amount)
    }
}

/// Ascending needs: `4000 + 8000 + 8000 MiB`, or `64 x 8000 MiB` where the list would be long or dull.
pub(super) fn list(needs: &[u64], amount: Amount<'_>) -> String {
    if let [one] = needs {
        return amount.say(*one);
    }
    if needs.len() <= 4 && needs.first() != needs.last() {
        let bare = |need: &u64| match amount {
            Amount::Vram | Amount::Gpus => need.to_string(),
            _ => amount.say(*need),
        };
        let (last, rest) = needs.split_last().expect("more than one, see above");
        let rest: Vec<String> = rest.iter().map(bare).collect();
        return format!("{} + {}", rest.join(" + "), amount.say(*last));
    }
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for need in needs {
        match runs.last_mut() {
            Some((size, number)) if size == need => *number += 1,
            _ => runs.push((*need, 1)),
        }
    }
    let runs: Vec<String> =
        runs.iter().map(|(size, number)| format!("{number} x {}", amount.say(*size))).collect();
    runs.join(" + ")
}
