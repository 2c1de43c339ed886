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
