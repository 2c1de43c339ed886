//! The declaration of a message.
//!
//! Holds: the macro that turns a list of fields into a struct, its default, decoder, encoder and schema.
//! Never touches: any particular message (see [`super::messages`]).
//!
//! ```text
//! message! {
//!     /// What it is.
//!     pub struct FetchTopic<'a> {
//!         /// What it means.
//!         topic [0-12]: &'a str,
//!         partitions [0+]: Vec<FetchPartition>,
//!         rack [1+] null [4+]: Option<&'a str> = Some(""),
//!         cluster_id [12+] tag 0: Option<&'a str>,
//!     }
//! }
//! ```
//!
//! * `[3+]`, `[0-12]`, `[8]`: the versions that have the field, in the notation of Kafka's schemas.
//! * `null [4+]`: versions in which an `Option` may be null; without it, all of them.
//! * `tag 0`: a tagged field (KIP-482). Tags are declared in ascending order, after which they are written.
//! * `= value`: Kafka's default, where it isn't zero, empty or null. It is what a version without the field decodes to, and
//!   what keeps a tagged field off the wire.
//!
//! A field that a version doesn't have is left out silently when that version is encoded: whether that loses anything is
//! for the caller to know.

/// Whether a version is in a group such as `[3+]`.
macro_rules! within {
    ($version:expr, [0+]) => {
        true
    };
    ($version:expr, [$min:literal +]) => {
        $version >= $min
    };
    ($version:expr, [$min:literal - $max:literal]) => {
        ($min..=$max).contains(&$version)
    };
    ($version:expr, [$only:literal]) => {
        $version == $only
    };
}

/// A group such as `[3+]` as a value.
macro_rules! versions {
    ([$min:literal +]) => {
        $crate::wire::VersionRange::new($min, i16::MAX)
    };
    ([$min:literal - $max:literal]) => {
        $crate::wire::VersionRange::new($min, $max)
    };
    ([$only:literal]) => {
        $crate::wire::VersionRange::new($only, $only)
    };
}

/// The code, unless the brackets in front of it hold a tag.
macro_rules! untagged {
    ([] $($code:tt)*) => { $($code)* };
    ([$tag:literal] $($code:tt)*) => {};
}

/// The first value given.
macro_rules! first_of {
    ([$value:expr] $($rest:tt)*) => {
        $value
    };
    ([] [$value:expr]) => {
        $value
    };
}

macro_rules! message {
    ($(#[$meta:meta])* pub struct $name:ident<$lt:lifetime> $body:tt) => {
        $crate::wire::message::message!(@build [$(#[$meta])*] $name [<$lt>] $lt $body);
    };
    ($(#[$meta:meta])* pub struct $name:ident $body:tt) => {
        $crate::wire::message::message!(@build [$(#[$meta])*] $name [] 'frame $body);
    };
    (@build [$($meta:tt)*] $name:ident [$($generics:tt)*] $lt:lifetime {
        $(
            $(#[$doc:meta])*
            $field:ident $versions:tt $(null $null:tt)? $(tag $tag:literal)? : $ty:ty $(= $default:expr)?
        ),* $(,)?
    }) => {
        $($meta)*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name $($generics)* {
            $(
                $(#[$doc])*
                #[doc = ""]
                #[doc = concat!("Versions ", stringify!($versions), $(", nullable in ", stringify!($null),)? $(", tag ", $tag,)? ".")]
                pub $field: $ty,
            )*
        }

        impl $($generics)* Default for $name $($generics)* {
            fn default() -> Self {
                Self {
                    $($field: $crate::wire::message::first_of!([$($default)?] [Default::default()]),)*
                }
            }
        }

        impl<$lt> $crate::wire::Wire<$lt> for $name $($generics)* {
            const TYPE: &'static $crate::wire::FieldType = &$crate::wire::FieldType::Struct(&$crate::wire::Schema {
                name: stringify!($name),
                fields: &[$($crate::wire::FieldSchema {
                    name: stringify!($field),
                    ty: <$ty as $crate::wire::Wire<$lt>>::TYPE,
                    versions: $crate::wire::message::versions!($versions),
                    nullable: $crate::wire::message::first_of!(
                        [$($crate::wire::message::versions!($null))?]
                        [$crate::wire::message::versions!($versions)]
                    ),
                    tag: $crate::wire::message::first_of!([$(Some($tag))?] [None]),
                }),*],
            });

            #[allow(unused_variables, unused_mut, clippy::redundant_closure_call)]
            fn decode(d: &mut $crate::wire::Decoder<$lt>) -> Result<Self, $crate::wire::DecodeError> {
                let version = d.version();
                let mut value = Self::default();
                $($crate::wire::message::untagged!([$($tag)?]
                    if $crate::wire::message::within!(version, $versions) {
                        d.enter(concat!(stringify!($name), ".", stringify!($field)));
                        value.$field = <$ty as $crate::wire::Wire<$lt>>::decode(d)?;
                        $(
                            if !$crate::wire::message::within!(version, $null) && value.$field.is_none() {
                                return Err(d.error($crate::wire::DecodeErrorKind::Null { version }));
                            }
                        )?
                    }
                );)*
                d.tagged_fields(|d, tag| {
                    $($(
                        if tag == $tag {
                            d.enter(concat!(stringify!($name), ".", stringify!($field)));
                            // Kafka refuses a known tag in a version that doesn't have it.
                            if !$crate::wire::message::within!(version, $versions) {
                                return Err(d.error($crate::wire::DecodeErrorKind::TagVersion { tag, version }));
                            }
                            value.$field = <$ty as $crate::wire::Wire<$lt>>::decode(d)?;
                            return Ok(true);
                        }
                    )?)*
                    Ok(false)
                })?;
                Ok(value)
            }

            #[allow(unused_variables, unused_mut)]
            fn encode(&self, e: &mut $crate::wire::Encoder) {
                let version = e.version();
                $($crate::wire::message::untagged!([$($tag)?]
                    if $crate::wire::message::within!(version, $versions) {
                        e.enter(concat!(stringify!($name), ".", stringify!($field)));
                        $(
                            if !$crate::wire::message::within!(version, $null) && self.$field.is_none() {
                                e.fail_null();
                            }
                        )?
                        $crate::wire::Wire::encode(&self.$field, e);
                    }
                );)*
                if e.flexible() {
                    // A tagged field at its default stays off the wire.
                    let default = Self::default();
                    let mut present = 0u32;
                    $($(
                        let _: u32 = $tag;
                        if $crate::wire::message::within!(version, $versions) && self.$field != default.$field {
                            present += 1;
                        }
                    )?)*
                    e.uvarint(present);
                    $($(
                        if $crate::wire::message::within!(version, $versions) && self.$field != default.$field {
                            e.enter(concat!(stringify!($name), ".", stringify!($field)));
                            e.tagged($tag, |e| $crate::wire::Wire::encode(&self.$field, e));
                        }
                    )?)*
                }
            }

            #[allow(unused_variables, unused_mut)]
            #[inline]
            fn min_size(version: i16, flexible: bool) -> usize {
                let mut bytes = usize::from(flexible);
                $($crate::wire::message::untagged!([$($tag)?]
                    if $crate::wire::message::within!(version, $versions) {
                        bytes += <$ty as $crate::wire::Wire<$lt>>::min_size(version, flexible);
                    }
                );)*
                bytes
            }
        }

        // A nullable structure has one byte in front: negative for null (KIP-893).
        impl<$lt> $crate::wire::Nullable<$lt> for $name $($generics)* {
            fn decode_nullable(d: &mut $crate::wire::Decoder<$lt>) -> Result<Option<Self>, $crate::wire::DecodeError> {
                let [presence] = d.array()?;
                if (presence as i8) < 0 {
                    return Ok(None);
                }
                $crate::wire::Wire::decode(d).map(Some)
            }

            fn encode_nullable(value: Option<&Self>, e: &mut $crate::wire::Encoder) {
                match value {
                    None => e.put(&[0xff]),
                    Some(value) => {
                        e.put(&[1]);
                        $crate::wire::Wire::encode(value, e);
                    }
                }
            }

            fn min_size_nullable(_version: i16, _flexible: bool) -> usize {
                1
            }
        }
    };
}

pub(super) use {first_of, message, untagged, versions, within};
