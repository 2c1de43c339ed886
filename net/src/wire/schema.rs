//! A message's layout as data.
//!
//! Holds: what [`super::message`] derives from a declaration besides code: field names, types, versions.
//! Never touches: bytes. Tests and fuzz seeds walk it to reach every field of every version.

use super::VersionRange;

/// Layout of a structure.
#[derive(Debug)]
pub struct Schema {
    /// Name of the structure.
    pub name: &'static str,
    /// Its fields, in wire order; tagged ones by ascending tag.
    pub fields: &'static [FieldSchema],
}

/// Layout of a field.
#[derive(Debug)]
pub struct FieldSchema {
    /// Name of the field.
    pub name: &'static str,
    /// Its type.
    pub ty: &'static FieldType,
    /// Versions that have it.
    pub versions: VersionRange,
    /// Versions in which it may be null, if its type has a null.
    pub nullable: VersionRange,
    /// Its tag, if it is a tagged field.
    pub tag: Option<u32>,
}

/// Type of a field.
#[derive(Debug)]
pub enum FieldType {
    /// One byte, zero or not.
    Bool,
    /// A signed or unsigned integer of this many bytes.
    Int(u8),
    /// An IEEE 754 double.
    Float64,
    /// An error code, two bytes.
    ErrorCode,
    /// Sixteen bytes.
    Uuid,
    /// UTF-8 text.
    String,
    /// Bytes, or record batches: same layout.
    Bytes,
    /// An array, decoded into a `Vec`.
    Array(&'static FieldType),
    /// An array that stays in the frame ([`super::LazyArray`]): its elements must not need heap.
    Lazy(&'static FieldType),
    /// A structure.
    Struct(&'static Schema),
    /// Any of the above, or null.
    Nullable(&'static FieldType),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{ApiKey, RequestBody, ResponseBody};

    fn visit(ty: &'static FieldType, in_lazy: bool) {
        match ty {
            FieldType::Array(element) => {
                assert!(!in_lazy, "an array with elements in memory inside of one that stays in the frame");
                visit(element, in_lazy);
            }
            FieldType::Lazy(element) => visit(element, true),
            FieldType::Nullable(inner) => visit(inner, in_lazy),
            FieldType::Struct(schema) => {
                let tags: Vec<_> = schema.fields.iter().filter_map(|field| field.tag).collect();
                assert!(tags.is_sorted_by(|a, b| a < b), "{}: tags {tags:?}", schema.name);
                schema.fields.iter().for_each(|field| visit(field.ty, in_lazy));
            }
            FieldType::Bool
            | FieldType::Int(_)
            | FieldType::Float64
            | FieldType::ErrorCode
            | FieldType::Uuid
            | FieldType::String
            | FieldType::Bytes => {}
        }
    }

    #[test]
    fn lazy_arrays_own_no_heap_and_tags_are_declared_in_order() {
        for &key in ApiKey::SUPPORTED {
            visit(RequestBody::layout(key), false);
            visit(ResponseBody::layout(key), false);
        }
    }
}
