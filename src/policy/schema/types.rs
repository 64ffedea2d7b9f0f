//! CEL types of the kinds: one type per schema definition, shared by all expressions.
//!
//! The types describe JSON, which expressions evaluate: timestamps, durations and bytes are strings there.

use std::sync::{Arc, LazyLock};

use portcullis_cel::{Env, StructFields, StructTypes, Type};

use super::{CATALOGUE, Schema, ValueShape};

static TYPES: LazyLock<Arc<StructTypes>> = LazyLock::new(|| {
    let mut types = StructTypes::new();
    for (name, schema) in &CATALOGUE.definitions {
        named(name, schema, &mut types);
    }
    Arc::new(types)
});

/// Returns the types of all definitions, by name.
#[must_use]
pub fn types() -> Arc<StructTypes> {
    Arc::clone(&TYPES)
}

/// Declares a variable with an object of a kind. `definition` is its [`super::ServedResource::definition`].
#[must_use]
pub fn declare(env: Env, variable: &str, definition: &str) -> Env {
    let declared = type_of(definition);
    env.with_types(types()).variable(variable, declared)
}

/// Returns the type of a definition's objects.
#[must_use]
pub fn type_of(definition: &str) -> Type {
    if TYPES.contains_key(definition) { Type::Struct(definition.into()) } else { Type::Dyn }
}

/// Returns the type of a value. Anonymous objects get the type name `name`.
fn named(name: &str, schema: &'static Schema, types: &mut StructTypes) -> Type {
    if let Some(definition) = schema.definition() {
        return match schema.shape() {
            ValueShape::Object if schema.is_open() => Type::Dyn,
            ValueShape::Object => Type::Struct(definition.into()),
            _ => named(name, schema.meant(), types),
        };
    }
    match schema.shape() {
        ValueShape::Text => Type::String,
        ValueShape::Integer => Type::Int,
        ValueShape::Number => Type::Double,
        ValueShape::Boolean => Type::Bool,
        ValueShape::List => {
            let items = schema.items().map(|items| named(&format!("{name}.@idx"), items, types));
            Type::list(items.unwrap_or(Type::Dyn))
        }
        ValueShape::Map => {
            let values = schema.values().map(|values| named(&format!("{name}.@elem"), values, types));
            Type::map(Type::String, values.unwrap_or(Type::Dyn))
        }
        ValueShape::Object if !schema.is_open() => {
            let fields: StructFields = schema
                .fields()
                .map(|(field, schema)| (field.to_owned(), named(&format!("{name}.{field}"), schema, types)))
                .collect();
            types.insert(name.to_owned(), fields);
            Type::Struct(name.into())
        }
        ValueShape::Object | ValueShape::IntegerOrText | ValueShape::Any => Type::Dyn,
    }
}
