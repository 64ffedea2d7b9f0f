//! Kinds as types of expressions: one type for each definition, shared by all expressions.
//!
//! A type says what an expression meets when it is evaluated, which is JSON: moments, periods and bytes are text there.

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

/// The types of all definitions, by name.
#[must_use]
pub fn types() -> Arc<StructTypes> {
    Arc::clone(&TYPES)
}

/// Declares a variable whose value is an object of a kind: `definition` is its [`super::ServedResource::definition`].
#[must_use]
pub fn declare(env: Env, variable: &str, definition: &str) -> Env {
    let declared = type_of(definition);
    env.with_types(types()).variable(variable, declared)
}

/// The type of the objects of a definition.
#[must_use]
pub fn type_of(definition: &str) -> Type {
    if TYPES.contains_key(definition) { Type::Struct(definition.into()) } else { Type::Dyn }
}

/// The type of a value that is called `name` unless it is called otherwise.
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
