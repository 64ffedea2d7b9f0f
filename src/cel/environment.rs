//! Declarations for expressions: variables with types, types with fields, functions with overloads. The
//! functions are those of Kubernetes 1.36, read from `library/signatures.tsv`. The program in `tests/cel`
//! writes that file from the API server's code.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde_json::Value as Json;

use crate::types::Type;

/// One signature of a function.
#[derive(Debug)]
pub(crate) struct Overload {
    pub(crate) id: &'static str,
    pub(crate) member: bool,
    pub(crate) arguments: Vec<Type>,
    pub(crate) result: Type,
    /// The number of type parameters.
    pub(crate) parameters: u32,
}

pub(crate) type Functions = BTreeMap<&'static str, Vec<Overload>>;

/// The functions of Kubernetes CEL. Overloads are in the order in which the checker tries them.
pub(crate) static FUNCTIONS: LazyLock<Functions> = LazyLock::new(|| {
    let mut functions = Functions::new();
    for line in include_str!("library/signatures.tsv").lines().filter(|line| !line.starts_with('#')) {
        let mut columns = line.split('\t');
        let mut next = || columns.next().unwrap_or_default();
        let (name, id, kind, arguments, result) = (next(), next(), next(), next(), next());
        let mut names = Vec::new();
        let arguments =
            arguments.split(';').filter(|a| !a.is_empty()).map(|a| Type::read(a, &mut names)).collect();
        let result = Type::read(result, &mut names);
        let parameters = u32::try_from(names.len()).unwrap_or(0);
        functions.entry(name).or_default().push(Overload {
            id,
            member: kind == "member",
            arguments,
            result,
            parameters,
        });
    }
    functions
});

/// The fields of a named type.
pub type StructFields = BTreeMap<String, Type>;

/// Struct types by name.
pub type StructTypes = BTreeMap<String, StructFields>;

/// The variables and types that an expression is checked against. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Env {
    variables: Arc<BTreeMap<String, Type>>,
    structs: Arc<StructTypes>,
    /// Types shared between environments. They are looked up after `structs`, the last one first.
    shared: Vec<Arc<StructTypes>>,
    patches: bool,
}

impl Env {
    /// An environment without variables and types.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares a variable. A name may contain dots. A later declaration of the same name replaces the
    /// earlier one.
    #[must_use]
    pub fn variable(mut self, name: &str, declared: Type) -> Self {
        Arc::make_mut(&mut self.variables).insert(name.to_owned(), declared);
        self
    }

    /// Declares a struct type.
    #[must_use]
    pub fn structure(mut self, name: &str, fields: StructFields) -> Self {
        Arc::make_mut(&mut self.structs).insert(name.to_owned(), fields);
        self
    }

    /// Declares one more field of a struct type. It copies the types only while another environment shares
    /// them.
    #[must_use]
    pub fn structure_field(mut self, of: &str, field: &str, declared: Type) -> Self {
        let structs = Arc::make_mut(&mut self.structs);
        structs.entry(of.to_owned()).or_default().insert(field.to_owned(), declared);
        self
    }

    /// Declares types that environments share without copying them.
    #[must_use]
    pub fn with_types(mut self, types: Arc<StructTypes>) -> Self {
        if !self.shared.iter().any(|known| Arc::ptr_eq(known, &types)) {
            self.shared.push(types);
        }
        self
    }

    /// Moves the declared types into the shared ones, so that clones of this environment add types without
    /// copying.
    #[must_use]
    pub fn sealed(mut self) -> Self {
        let types = std::mem::take(&mut self.structs);
        self.with_types(types)
    }

    /// Declares a variable whose type is an OpenAPI v3 schema. Type names are those of the API server: `name`
    /// for the type, `name.field` for nested objects, `name.@idx` for list items, `name.@elem` for map
    /// values.
    #[must_use]
    pub fn schema(self, variable: &str, name: &str, schema: &Json) -> Self {
        let mut env = self;
        let declared = env.declare(name, schema).unwrap_or(Type::Dyn);
        env.variable(variable, declared)
    }

    /// Allows `Object{}` and `JSONPatch{}`, the types of a `MutatingAdmissionPolicy`.
    #[must_use]
    pub fn with_patches(mut self) -> Self {
        self.patches = true;
        self
    }

    /// Names and types of all variables, in order. An activation binds variables by their position in it.
    pub fn variables(&self) -> impl Iterator<Item = (&str, &Type)> {
        self.variables.iter().map(|(name, declared)| (name.as_str(), declared))
    }

    pub(crate) fn position(&self, name: &str) -> Option<(usize, &Type)> {
        self.variables
            .iter()
            .enumerate()
            .find(|(_, (known, _))| *known == name)
            .map(|(at, (_, declared))| (at, declared))
    }

    /// The type with a name; `None` when no type has the name.
    pub(crate) fn type_named(&self, name: &str) -> Option<Type> {
        Some(match name {
            "bool" => Type::Bool,
            "bytes" => Type::Bytes,
            "double" => Type::Double,
            "int" => Type::Int,
            "string" => Type::String,
            "uint" => Type::Uint,
            "null_type" => Type::Null,
            "list" => Type::list(Type::Param(u32::MAX)),
            "map" => Type::map(Type::Param(u32::MAX), Type::Param(u32::MAX)),
            "type" => Type::Type(None),
            "duration" | "google.protobuf.Duration" => Type::Duration,
            "timestamp" | "google.protobuf.Timestamp" => Type::Timestamp,
            "optional_type" | "net.IP" | "net.CIDR" => Type::Opaque(name.into(), Arc::new([])),
            _ if self.has_struct(name) => Type::Struct(name.into()),
            _ => return None,
        })
    }

    fn structure_named(&self, name: &str) -> Option<&StructFields> {
        self.structs.get(name).or_else(|| self.shared.iter().rev().find_map(|types| types.get(name)))
    }

    pub(crate) fn has_struct(&self, name: &str) -> bool {
        self.structure_named(name).is_some()
            || (self.patches && (name == "JSONPatch" || name == "Object" || name.starts_with("Object.")))
    }

    pub(crate) fn field(&self, of: &str, field: &str) -> Option<Type> {
        if let Some(fields) = self.structure_named(of) {
            let known = fields.get(field).or_else(|| fields.get(&unescape(field)?));
            return known.cloned();
        }
        if !self.has_struct(of) {
            return None;
        }
        match (of, field) {
            ("JSONPatch", "op" | "path" | "from") => Some(Type::String),
            ("JSONPatch", "value") => Some(Type::Dyn),
            ("JSONPatch", _) => None,
            _ => Some(Type::Dyn),
        }
    }

    pub(crate) fn fields(&self, of: &str) -> Vec<&str> {
        if of == "JSONPatch" {
            return vec!["op", "path", "from", "value"];
        }
        self.structure_named(of).map(|fields| fields.keys().map(String::as_str).collect()).unwrap_or_default()
    }

    fn declare(&mut self, name: &str, schema: &Json) -> Option<Type> {
        if schema.get("x-kubernetes-int-or-string").and_then(Json::as_bool) == Some(true) {
            return Some(Type::Dyn);
        }
        let text = |key: &str| schema.get(key).and_then(Json::as_str).unwrap_or_default();
        Some(match (text("type"), text("format")) {
            ("array", _) => Type::list(self.declare(&format!("{name}.@idx"), schema.get("items")?)?),
            ("object", _) => {
                if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
                    return Some(Type::map(Type::String, self.declare(&format!("{name}.@elem"), values)?));
                }
                let mut fields = StructFields::new();
                for (field, schema) in
                    schema.get("properties").and_then(Json::as_object).into_iter().flatten()
                {
                    if let Some(declared) = self.declare(&format!("{name}.{field}"), schema) {
                        fields.insert(field.clone(), declared);
                    }
                }
                Arc::make_mut(&mut self.structs).insert(name.to_owned(), fields);
                Type::Struct(name.into())
            }
            ("string", "byte") => Type::Bytes,
            ("string", "duration") => Type::Duration,
            ("string", "date" | "date-time") => Type::Timestamp,
            ("string", _) => Type::String,
            ("boolean", _) => Type::Bool,
            ("number", _) => Type::Double,
            ("integer", _) => Type::Int,
            _ => return None,
        })
    }
}

/// The field name that an escaped name such as `__dash__` or `__namespace__` stands for. The API server
/// escapes field names that are not identifiers.
fn unescape(name: &str) -> Option<String> {
    if !name.contains("__") {
        return None;
    }
    let plain = name
        .replace("__underscores__", "__")
        .replace("__dot__", ".")
        .replace("__dash__", "-")
        .replace("__slash__", "/");
    if plain != name {
        return Some(plain);
    }
    name.strip_prefix("__")?.strip_suffix("__").map(str::to_owned)
}
