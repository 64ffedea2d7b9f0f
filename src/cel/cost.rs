//! What an evaluation costs, in the API server's units, and where it is cut off. The rules are those of cel-go's tracker with
//! Kubernetes' additions; a test holds them to a table made with both.

use crate::library::opaque::Opaque;
use crate::value::Value;

/// The most that one expression may cost.
pub const PER_CALL: u64 = 1_000_000;
/// The most that the expressions of one policy may cost together.
pub const PER_POLICY: u64 = 10_000_000;
/// The most that the match conditions of one policy may cost together.
pub const MATCH_CONDITIONS: u64 = 2_500_000;
/// The most work that one expression may make beyond what its cost tells: rounds of loops, values compared inside of others, patterns
/// compiled. The API server has no such bound but its clock: some loops cost nothing, and comparing two pods costs as much as two words.
pub const ROUNDS: u64 = 1_000_000;

/// The most work that the expressions of one policy may make together.
pub const ROUNDS_TOGETHER: u64 = 10 * ROUNDS;

/// What may be spent, and what was.
#[derive(Clone, Debug)]
pub struct Budget {
    total: u64,
    spent: u64,
    per_call: u64,
    pub(crate) call: u64,
    pub(crate) rounds: u64,
    /// The work of all evaluations before this one.
    worked: u64,
    /// The cost and the work that the next evaluation may still make, whatever the other limits say.
    allowed: u64,
}

impl Budget {
    /// A budget for the expressions of one policy together; each may cost [`PER_CALL`].
    #[must_use]
    pub fn new(total: u64) -> Self {
        Self { total, spent: 0, per_call: PER_CALL, call: 0, rounds: 0, worked: 0, allowed: u64::MAX }
    }

    /// With another limit for each expression.
    #[must_use]
    pub fn per_call(mut self, limit: u64) -> Self {
        self.per_call = limit;
        self
    }

    /// Lets the next evaluation cost, and make work, only so much: for whoever gives up early and tries again with all there is.
    pub fn allow(&mut self, units: u64) {
        self.allowed = units;
    }

    /// What of [`Budget::allow`] is left for others while an evaluation goes on.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.allowed.saturating_sub(self.call.saturating_add(self.rounds))
    }

    /// Cost and work of all evaluations so far.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.spent().saturating_add(self.worked).saturating_add(self.rounds)
    }

    /// What all evaluations so far cost.
    #[must_use]
    pub fn spent(&self) -> u64 {
        self.spent.saturating_add(self.call)
    }

    /// What the last evaluation cost.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.call
    }

    /// Whether more was spent than there is, or more work made than [`ROUNDS_TOGETHER`]. The API server looks after each expression,
    /// so the last one may go beyond.
    #[must_use]
    pub fn is_exceeded(&self) -> bool {
        self.spent() > self.total || self.worked.saturating_add(self.rounds) > ROUNDS_TOGETHER
    }

    /// Counts what something else has cost, such as a variable that an expression asked for. It does not count for the limit of
    /// that expression.
    pub fn add(&mut self, cost: u64) {
        self.spent = self.spent.saturating_add(cost);
    }

    /// Counts all that another budget was used for, as [`Budget::add`] does, and its work.
    pub fn absorb(&mut self, other: &Self) {
        self.add(other.spent());
        self.worked = self.worked.saturating_add(other.worked).saturating_add(other.rounds);
        self.allowed = self.allowed.saturating_sub(other.used());
    }

    pub(crate) fn begin(&mut self) {
        self.spent = self.spent();
        self.worked = self.worked.saturating_add(self.rounds);
        self.call = 0;
        self.rounds = 0;
    }

    /// Counts a cost; false when it is too much.
    #[inline]
    pub(crate) fn charge(&mut self, cost: u64) -> bool {
        self.call = self.call.saturating_add(cost);
        self.call <= self.per_call.min(self.allowed)
    }

    /// Whether a cost could still be paid.
    pub(crate) fn affords(&self, cost: u64) -> bool {
        self.call.saturating_add(cost) <= self.per_call.min(self.allowed)
    }

    /// Counts work; false when it is too much.
    #[inline]
    pub(crate) fn work(&mut self, units: u64) -> bool {
        self.rounds = self.rounds.saturating_add(units);
        self.rounds <= ROUNDS.min(self.allowed)
    }
}

/// How the cost of a call is found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    One,
    /// So many tenths of the size of the first argument.
    Traverse(u64),
    /// Two tenths of the size of the result.
    Join,
    Regex,
    Contains,
    /// A tenth of the smaller of two sizes.
    Smaller,
    /// A tenth of two sizes together.
    Both,
    /// The size of the second argument.
    Second,
    /// Every leaf below the first argument.
    Leaves,
    ContainsIp {
        parse: bool,
    },
    ContainsCidr {
        parse: bool,
    },
    Validate,
    Sets(u64),
    Output,
    Flatten,
    /// The argument of that index with itself.
    SelfCompare(usize),
}

fn tenths(size: u64, tenths: u64) -> u64 {
    size.saturating_mul(tenths).div_ceil(10)
}

/// An argument as the tracker sees it; none is an error, whose size is 1.
fn size(argument: Option<&Value<'_>>) -> u64 {
    argument.map_or(1, Value::size)
}

impl Rule {
    /// The rule of a function and, if there is only one that fits, its overload.
    pub(crate) fn of(function: &str, overload: Option<&str>) -> Self {
        match overload.unwrap_or_default() {
            "list_slice" | "lists_range" | "list_reverse" => return Self::Output,
            "list_flatten" | "list_flatten_int" => return Self::Flatten,
            "list_distinct" => return Self::SelfCompare(0),
            "list_sets_contains_list" | "list_sets_intersects_list" => return Self::Sets(1),
            "list_sets_equivalent_list" => return Self::Sets(2),
            id if id.starts_with("list_") && id.ends_with("_sort") => return Self::SelfCompare(0),
            id if id.ends_with("_sortByAssociatedKeys") => return Self::SelfCompare(1),
            _ => {}
        }
        match function {
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => return Self::Leaves,
            "url"
            | "lowerAscii"
            | "upperAscii"
            | "substring"
            | "trim"
            | "jsonpatch.escapeKey"
            | "cidr"
            | "isIP"
            | "isCIDR"
            | "quantity"
            | "isQuantity"
            | "semver"
            | "isSemver" => return Self::Traverse(1),
            "ip" if overload != Some("cidr_ip") => return Self::Traverse(1),
            "replace" | "split" | "ip.isCanonical" => return Self::Traverse(2),
            "join" => return Self::Join,
            "find" | "findAll" => return Self::Regex,
            "containsIP" => return Self::ContainsIp { parse: overload == Some("cidr_contains_ip_string") },
            "containsCIDR" => {
                return Self::ContainsCidr { parse: overload == Some("cidr_contains_cidr_string") };
            }
            "validate" => return Self::Validate,
            "_==_" | "_!=_" => return Self::Smaller,
            _ => {}
        }
        match overload.unwrap_or_default() {
            "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string"
            | "strings_quote" | "string_format" => Self::Traverse(1),
            "in_list" => Self::Second,
            "less_string"
            | "greater_string"
            | "less_equals_string"
            | "greater_equals_string"
            | "less_bytes"
            | "greater_bytes"
            | "less_equals_bytes"
            | "greater_equals_bytes" => Self::Smaller,
            "add_string" | "add_bytes" => Self::Both,
            "matches_string" => Self::Regex,
            "contains_string" => Self::Contains,
            _ => Self::One,
        }
    }

    /// The cost before the call, when the result has no say in it.
    pub(crate) fn before(self, arguments: &[Option<&Value<'_>>]) -> Option<u64> {
        let first = || size(arguments.first().copied().flatten());
        let second = || size(arguments.get(1).copied().flatten());
        const CREATE: u64 = 11;
        Some(match self {
            Self::One => 1,
            Self::Traverse(factor) => tenths(first(), factor),
            Self::Join | Self::Output => return None,
            Self::Regex => tenths(first() + 1, 1).saturating_mul(second().div_ceil(4)),
            Self::Contains => tenths(first(), 1).saturating_mul(tenths(second(), 1)),
            Self::Smaller => match (arguments.first().copied().flatten(), self.is_unit(arguments)) {
                (Some(_), true) => 1,
                _ => tenths(first().min(second()), 1),
            },
            Self::Both => tenths(first() + second(), 1),
            Self::Second => second(),
            Self::Leaves => arguments.first().copied().flatten().map_or(1, leaves),
            Self::ContainsIp { parse } => {
                tenths(first() * 2, 1) + if parse { tenths(second(), 1) } else { 0 }
            }
            Self::ContainsCidr { parse } => {
                tenths(first() * 2, 1) + tenths(first(), 1) + 1 + if parse { tenths(second(), 1) } else { 0 }
            }
            Self::Validate => match arguments.first().copied().flatten() {
                Some(Value::Opaque(opaque)) => match opaque.as_ref() {
                    Opaque::Format(format) => tenths(second() + 1, 1) * format.pattern.div_ceil(4),
                    _ => 1,
                },
                _ => 1,
            },
            Self::Sets(factor) => 1 + first().saturating_mul(second()).saturating_mul(factor),
            Self::Flatten => {
                let depth = match arguments.get(1).copied().flatten() {
                    Some(Value::Int(depth)) => u64::try_from(*depth).unwrap_or(0),
                    _ => 1,
                };
                first().saturating_mul(depth).saturating_add(CREATE)
            }
            Self::SelfCompare(index) => {
                let Some(Value::List(list)) = arguments.get(index).copied().flatten() else { return Some(1) };
                let size = list.len() as u64;
                let texts = matches!(list.item(0), Some(Value::String(_) | Value::Bytes(_)));
                let squared = size.saturating_mul(size);
                let cost = if texts { squared.saturating_mul(21) / 10 } else { squared.saturating_mul(2) };
                cost.saturating_add(CREATE)
            }
        })
    }

    /// Equality of Kubernetes' own values costs one whatever their size.
    fn is_unit(self, arguments: &[Option<&Value<'_>>]) -> bool {
        matches!(arguments.first(), Some(Some(Value::Opaque(_))))
    }

    /// The cost after the call, when the result decides.
    pub(crate) fn after(self, result: Option<&Value<'_>>) -> u64 {
        match self {
            Self::Join => tenths(size(result), 2),
            Self::Output => size(result) + 11,
            _ => 1,
        }
    }
}

/// The cost of walking a value down to its leaves.
fn leaves(value: &Value<'_>) -> u64 {
    match value {
        Value::String(text) => text.as_str().len() as u64 / 10,
        Value::Bytes(bytes) => bytes.len() as u64 / 10,
        Value::List(list) => list.iter().map(|item| leaves(&item)).sum(),
        Value::Map(map) => map.entries().iter().map(|(key, value)| leaves(key) + leaves(value)).sum(),
        _ => 1,
    }
}
