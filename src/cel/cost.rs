//! The cost of an evaluation, in units of the API server, and its limits. The rules are those of cel-go's
//! cost tracker and of Kubernetes' additions. `tests/table.rs` compares them with costs computed by the API
//! server's code.

use crate::library::opaque::Opaque;
use crate::value::Value;

/// Cost limit of one expression (`PerCallLimit` of k8s.io/apiserver).
pub const MAX_EXPRESSION_COST: u64 = 1_000_000;
/// Cost limit of all expressions of one policy (`RuntimeCELCostBudget`).
pub const MAX_POLICY_COST: u64 = 10_000_000;
/// Cost limit of all match conditions of one policy (`RuntimeCELCostBudgetMatchConditions`).
pub const MAX_MATCH_CONDITIONS_COST: u64 = 2_500_000;
/// Work limit of one expression. Work is what the cost does not cover: rounds of loops, values compared
/// inside of other values, patterns compiled. The API server bounds it only by a timeout: some loops cost
/// nothing, and comparing two pods costs as much as comparing two words.
pub const MAX_EXPRESSION_WORK: u64 = 1_000_000;

/// Work limit of all expressions of one policy.
pub const MAX_POLICY_WORK: u64 = 10 * MAX_EXPRESSION_WORK;

/// Cost and work of evaluations, and their limits.
#[derive(Clone, Debug)]
pub struct Budget {
    total: u64,
    spent: u64,
    per_call: u64,
    pub(crate) call: u64,
    pub(crate) rounds: u64,
    /// The work of all finished evaluations.
    worked: u64,
    /// A lower limit of cost plus work for the next evaluation.
    allowed: u64,
}

impl Budget {
    /// A budget for all expressions of one policy. Each expression may cost [`MAX_EXPRESSION_COST`].
    #[must_use]
    pub fn new(total: u64) -> Self {
        Self {
            total,
            spent: 0,
            per_call: MAX_EXPRESSION_COST,
            call: 0,
            rounds: 0,
            worked: 0,
            allowed: u64::MAX,
        }
    }

    /// Sets another cost limit for each expression.
    #[must_use]
    pub fn per_call(mut self, limit: u64) -> Self {
        self.per_call = limit;
        self
    }

    /// Limits cost plus work of the next evaluation. Callers use it to stop early and to retry later with the
    /// full budget.
    pub fn allow(&mut self, units: u64) {
        self.allowed = units;
    }

    /// The part of the limit set by [`Budget::allow`] that is not used yet.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.allowed.saturating_sub(self.call.saturating_add(self.rounds))
    }

    /// The used part of the budget: cost plus work of all evaluations.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.spent().saturating_add(self.worked).saturating_add(self.rounds)
    }

    /// Cost of all evaluations.
    #[must_use]
    pub fn spent(&self) -> u64 {
        self.spent.saturating_add(self.call)
    }

    /// Cost of the last evaluation.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.call
    }

    /// Whether the total cost or [`MAX_POLICY_WORK`] is exceeded. The API server checks after each
    /// expression, so the last expression may exceed the limit.
    #[must_use]
    pub fn is_exceeded(&self) -> bool {
        self.spent() > self.total || self.worked.saturating_add(self.rounds) > MAX_POLICY_WORK
    }

    /// Adds a cost that does not count for the limit of the current expression, such as that of a policy
    /// variable.
    pub fn add(&mut self, cost: u64) {
        self.spent = self.spent.saturating_add(cost);
    }

    /// Adds cost and work of another budget, like [`Budget::add`].
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

    /// Adds a cost; returns false when a limit is exceeded.
    #[inline]
    pub(crate) fn charge(&mut self, cost: u64) -> bool {
        self.call = self.call.saturating_add(cost);
        self.call <= self.per_call.min(self.allowed)
    }

    /// Whether a cost is within the limits.
    pub(crate) fn affords(&self, cost: u64) -> bool {
        self.call.saturating_add(cost) <= self.per_call.min(self.allowed)
    }

    /// Adds work; returns false when a limit is exceeded.
    #[inline]
    pub(crate) fn work(&mut self, units: u64) -> bool {
        self.rounds = self.rounds.saturating_add(units);
        self.rounds <= MAX_EXPRESSION_WORK.min(self.allowed)
    }
}

/// How the cost of a call is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CostRule {
    One,
    /// This many tenths of the size of the first argument.
    Traverse(u64),
    /// Two tenths of the size of the result.
    Join,
    Regex,
    Contains,
    /// A tenth of the smaller of two sizes.
    Smaller,
    /// A tenth of the sum of two sizes.
    Both,
    /// The size of the second argument.
    Second,
    /// The number of leaves in the first argument, strings by length.
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
    /// Comparing the items of the argument at this index with each other.
    SelfCompare(usize),
}

fn tenths(size: u64, tenths: u64) -> u64 {
    size.saturating_mul(tenths).div_ceil(10)
}

/// The size of an argument. An argument that failed has size 1, as in the tracker of cel-go.
fn size(argument: Option<&Value<'_>>) -> u64 {
    argument.map_or(1, Value::size)
}

impl CostRule {
    /// The cost rule of a function. `overload` is the only overload that fits, when there is one.
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

    /// The cost before the call; `None` when the cost depends on the result.
    pub(crate) fn before(self, arguments: &[Option<&Value<'_>>]) -> Option<u64> {
        let first = || size(arguments.first().copied().flatten());
        let second = || size(arguments.get(1).copied().flatten());
        const CREATE_LIST_COST: u64 = 11;
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
                first().saturating_mul(depth).saturating_add(CREATE_LIST_COST)
            }
            Self::SelfCompare(index) => {
                let Some(Value::List(list)) = arguments.get(index).copied().flatten() else { return Some(1) };
                let size = list.len() as u64;
                let texts = matches!(list.item(0), Some(Value::String(_) | Value::Bytes(_)));
                let squared = size.saturating_mul(size);
                let cost = if texts { squared.saturating_mul(21) / 10 } else { squared.saturating_mul(2) };
                cost.saturating_add(CREATE_LIST_COST)
            }
        })
    }

    /// Whether the first argument is an opaque value. Their equality costs 1 whatever their size.
    fn is_unit(self, arguments: &[Option<&Value<'_>>]) -> bool {
        matches!(arguments.first(), Some(Some(Value::Opaque(_))))
    }

    /// The cost after the call, when it depends on the result.
    pub(crate) fn after(self, result: Option<&Value<'_>>) -> u64 {
        match self {
            Self::Join => tenths(size(result), 2),
            Self::Output => size(result) + 11,
            _ => 1,
        }
    }
}

/// The cost of visiting the leaves of a value.
fn leaves(value: &Value<'_>) -> u64 {
    match value {
        Value::String(text) => text.as_str().len() as u64 / 10,
        Value::Bytes(bytes) => bytes.len() as u64 / 10,
        Value::List(list) => list.iter().map(|item| leaves(&item)).sum(),
        Value::Map(map) => map.entries().iter().map(|(key, value)| leaves(key) + leaves(value)).sum(),
        _ => 1,
    }
}
