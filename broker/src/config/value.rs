//! The value of one property: its type, how it is read from text, and what it may be.
//!
//! Holds: the nine types of Kafka's properties, their parsers and validators, with Kafka's error messages.
//! Never touches: names, defaults, where a value came from.

use std::borrow::Cow;
use std::fmt;

use thiserror::Error;

/// The type of a property, as DescribeConfigs names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigType {
    /// `true` or `false`, in any case.
    Boolean,
    /// Text, trimmed.
    String,
    /// A 32-bit integer.
    Int,
    /// A 16-bit integer.
    Short,
    /// A 64-bit integer.
    Long,
    /// A 64-bit floating point number.
    Double,
    /// Texts separated by commas.
    List,
    /// The name of a Java class. Kept as text: there is no JVM here to load it.
    Class,
    /// Text that is never shown.
    Password,
}

impl ConfigType {
    /// The id in DescribeConfigs responses (0 is "unknown").
    #[must_use]
    pub const fn id(self) -> i8 {
        match self {
            Self::Boolean => 1,
            Self::String => 2,
            Self::Int => 3,
            Self::Short => 4,
            Self::Long => 5,
            Self::Double => 6,
            Self::List => 7,
            Self::Class => 8,
            Self::Password => 9,
        }
    }

    /// The name as Kafka's documentation and error messages write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Boolean => "BOOLEAN",
            Self::String => "STRING",
            Self::Int => "INT",
            Self::Short => "SHORT",
            Self::Long => "LONG",
            Self::Double => "DOUBLE",
            Self::List => "LIST",
            Self::Class => "CLASS",
            Self::Password => "PASSWORD",
        }
    }
}

impl fmt::Display for ConfigType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A parsed value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of [`ConfigType::Boolean`].
    Boolean(bool),
    /// Of [`ConfigType::Int`].
    Int(i32),
    /// Of [`ConfigType::Short`].
    Short(i16),
    /// Of [`ConfigType::Long`].
    Long(i64),
    /// Of [`ConfigType::Double`].
    Double(f64),
    /// Of [`ConfigType::String`], [`ConfigType::Class`] or [`ConfigType::Password`].
    Text(String),
    /// Of [`ConfigType::List`].
    List(Vec<String>),
}

impl fmt::Display for Value {
    /// The canonical text, as Kafka reports it: numbers normalised, list items joined by a bare comma.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean(v) => v.fmt(f),
            Self::Int(v) => v.fmt(f),
            Self::Short(v) => v.fmt(f),
            Self::Long(v) => v.fmt(f),
            Self::Double(v) => write_java_double(*v, f),
            Self::Text(v) => f.write_str(v),
            Self::List(items) => f.write_str(&items.join(",")),
        }
    }
}

/// Writes a double the way Java's `Double.toString` does: Kafka's clients show and compare that text.
fn write_java_double(v: f64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if v.is_nan() {
        return f.write_str("NaN");
    }
    if v.is_infinite() {
        return f.write_str(if v > 0.0 { "Infinity" } else { "-Infinity" });
    }
    let magnitude = v.abs();
    if v == 0.0 || (1e-3..1e7).contains(&magnitude) {
        // `{:?}` always keeps one digit behind the point.
        return write!(f, "{v:?}");
    }
    let scientific = format!("{v:E}");
    match scientific.split_once('E') {
        Some((mantissa, exponent)) if !mantissa.contains('.') => {
            write!(f, "{mantissa}.0E{exponent}")
        }
        Some(_) | None => f.write_str(&scientific),
    }
}

/// What a value may be, beyond being of its type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Validator {
    /// Anything of the type.
    Any,
    /// A number not below this one.
    AtLeast(i64),
    /// A number within these bounds, both included.
    Between(i64, i64),
    /// The same for a [`ConfigType::Double`].
    BetweenDouble(f64, f64),
    /// A compression level of gzip: 1 to 9, or -1 for the codec's own default.
    GzipLevel,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// One of these texts, in any case.
    OneOfAnyCase(&'static [&'static str]),
    /// A list without duplicates and without empty items; its items are among these, if any are named.
    ListOf {
        /// The items allowed; empty: all.
        allowed: &'static [&'static str],
        /// Whether the list itself may be empty.
        empty_allowed: bool,
    },
    /// Text that is not empty.
    NonEmpty,
    /// A list of `partition:broker`, or `*`, or nothing.
    ThrottledReplicas,
}

/// Why a value was refused. Shown, it reads as Kafka's own message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ValueError {
    /// The value is not of the property's type or is outside what is allowed.
    #[error("Invalid value {value} for configuration {name}: {reason}")]
    Invalid {
        /// The property.
        name: String,
        /// The refused value (`[hidden]` for a password).
        value: String,
        /// What would have been accepted.
        reason: String,
    },
    /// A list that must not be empty is.
    #[error("Configuration '{name}' must not be empty. Valid values include: {allowed}")]
    EmptyList {
        /// The property.
        name: String,
        /// What would have been accepted.
        allowed: String,
    },
    /// An item stands twice in a list.
    #[error("Configuration '{name}' values must not be duplicated.")]
    DuplicateItem {
        /// The property.
        name: String,
    },
    /// An item of a list is empty.
    #[error("Configuration '{name}' values must not be empty.")]
    EmptyItem {
        /// The property.
        name: String,
    },
}

impl ValueError {
    fn invalid(name: &str, value: impl fmt::Display, reason: impl Into<String>) -> Self {
        Self::Invalid { name: name.to_owned(), value: value.to_string(), reason: reason.into() }
    }
}

/// Reads `text` as a value of `kind` and checks it with `validator`. `name` is for the error only.
///
/// # Errors
/// [`ValueError`] with Kafka's message.
pub fn parse(name: &str, text: &str, kind: ConfigType, validator: Validator) -> Result<Value, ValueError> {
    let value = parse_type(name, text, kind)?;
    check(name, &value, validator).map_err(|error| hide_if(kind, error))?;
    Ok(value)
}

fn hide_if(kind: ConfigType, error: ValueError) -> ValueError {
    match (kind, error) {
        (ConfigType::Password, ValueError::Invalid { name, reason, .. }) => {
            ValueError::Invalid { name, value: "[hidden]".to_owned(), reason }
        }
        (_, error) => error,
    }
}

fn parse_type(name: &str, text: &str, kind: ConfigType) -> Result<Value, ValueError> {
    let trimmed = text.trim_matches(|c: char| c <= ' ');
    let not_a_number = || ValueError::invalid(name, text, format!("Not a number of type {kind}"));
    Ok(match kind {
        ConfigType::Boolean if trimmed.eq_ignore_ascii_case("true") => Value::Boolean(true),
        ConfigType::Boolean if trimmed.eq_ignore_ascii_case("false") => Value::Boolean(false),
        ConfigType::Boolean => {
            return Err(ValueError::invalid(name, text, "Expected value to be either true or false"));
        }
        ConfigType::Int => Value::Int(trimmed.parse().map_err(|_| not_a_number())?),
        ConfigType::Short => Value::Short(trimmed.parse().map_err(|_| not_a_number())?),
        ConfigType::Long => Value::Long(trimmed.parse().map_err(|_| not_a_number())?),
        ConfigType::Double => Value::Double(parse_java_double(trimmed).ok_or_else(not_a_number)?),
        ConfigType::String | ConfigType::Class | ConfigType::Password => Value::Text(trimmed.to_owned()),
        ConfigType::List => Value::List(split_list(trimmed)),
    })
}

/// Splits at commas and drops the white space around them. An empty text is an empty list; an empty item stays.
#[must_use]
pub fn split_list(text: &str) -> Vec<String> {
    let text = text.trim();
    if text.is_empty() {
        return Vec::new();
    }
    text.split(',').map(|item| item.trim().to_owned()).collect()
}

fn parse_java_double(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, "NaN" | "Infinity") {
        return text.parse().ok();
    }
    // Java takes a type suffix (`0.5d`); Rust takes words that Java doesn't (`inf`).
    let digits = text.strip_suffix(['d', 'D', 'f', 'F']).unwrap_or(text);
    let only_digits = digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.' | b'e' | b'E'));
    only_digits.then(|| digits.parse().ok()).flatten()
}

fn check(name: &str, value: &Value, validator: Validator) -> Result<(), ValueError> {
    match validator {
        Validator::Any => Ok(()),
        Validator::AtLeast(min) => check_bounds(name, value, min, None),
        Validator::Between(min, max) => check_bounds(name, value, min, Some(max)),
        Validator::BetweenDouble(min, max) => {
            let Value::Double(number) = *value else {
                return Ok(());
            };
            if number < min {
                let reason = format!("Value must be at least {min}");
                return Err(ValueError::invalid(name, value, reason));
            }
            if number > max {
                let reason = format!("Value must be no more than {max}");
                return Err(ValueError::invalid(name, value, reason));
            }
            Ok(())
        }
        Validator::GzipLevel => match *value {
            Value::Int(level) if level != -1 && !(1..=9).contains(&level) => {
                let reason = "Value must be between 1 and 9 or equal to -1";
                Err(ValueError::invalid(name, value, reason))
            }
            _ => Ok(()),
        },
        Validator::OneOf(allowed) => match value {
            Value::Text(text) if !allowed.contains(&text.as_str()) => {
                let reason = format!("String must be one of: {}", allowed.join(", "));
                Err(ValueError::invalid(name, value, reason))
            }
            _ => Ok(()),
        },
        Validator::OneOfAnyCase(allowed) => match value {
            Value::Text(text) if !allowed.iter().any(|a| a.eq_ignore_ascii_case(text)) => {
                let reason = format!("String must be one of (case insensitive): {}", allowed.join(", "));
                Err(ValueError::invalid(name, value, reason))
            }
            _ => Ok(()),
        },
        Validator::ListOf { allowed, empty_allowed } => match value {
            Value::List(items) => check_list(name, items, allowed, empty_allowed),
            _ => Ok(()),
        },
        Validator::NonEmpty => match value {
            Value::Text(text) if text.is_empty() => Err(ValueError::invalid(name, value, "String must be non-empty")),
            _ => Ok(()),
        },
        Validator::ThrottledReplicas => match value {
            Value::List(items) if !is_throttled_replicas(items) => Err(ValueError::invalid(
                name,
                format_args!("[{}]", items.join(", ")),
                format!(
                    "{name} must be the literal '*' or a list of replicas in the following format: \
                     [partitionId]:[brokerId],[partitionId]:[brokerId],..."
                ),
            )),
            _ => Ok(()),
        },
    }
}

fn check_bounds(name: &str, value: &Value, min: i64, max: Option<i64>) -> Result<(), ValueError> {
    let number = match *value {
        Value::Int(v) => i64::from(v),
        Value::Short(v) => i64::from(v),
        Value::Long(v) => v,
        Value::Boolean(_) | Value::Double(_) | Value::Text(_) | Value::List(_) => return Ok(()),
    };
    if number < min {
        let reason = format!("Value must be at least {min}");
        return Err(ValueError::invalid(name, value, reason));
    }
    match max {
        Some(max) if number > max => {
            let reason = format!("Value must be no more than {max}");
            Err(ValueError::invalid(name, value, reason))
        }
        _ => Ok(()),
    }
}

fn check_list(name: &str, items: &[String], allowed: &[&str], empty_allowed: bool) -> Result<(), ValueError> {
    if items.is_empty() && !empty_allowed {
        return Err(ValueError::EmptyList {
            name: name.to_owned(),
            allowed: if allowed.is_empty() {
                "any non-empty value".to_owned()
            } else {
                format!("[{}]", allowed.join(", "))
            },
        });
    }
    let mut sorted: Vec<&String> = items.iter().collect();
    sorted.sort_unstable();
    if sorted.array_windows().any(|[a, b]| a == b) {
        return Err(ValueError::DuplicateItem { name: name.to_owned() });
    }
    for item in items {
        if item.is_empty() {
            return Err(ValueError::EmptyItem { name: name.to_owned() });
        }
        if !allowed.is_empty() && !allowed.contains(&item.as_str()) {
            let reason = format!("String must be one of: {}", allowed.join(", "));
            return Err(ValueError::invalid(name, item, reason));
        }
    }
    Ok(())
}

fn is_throttled_replicas(items: &[String]) -> bool {
    let pair = |item: &String| {
        let mut parts = item.split(':');
        let number = |part: Option<&str>| part.is_some_and(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()));
        number(parts.next()) && number(parts.next()) && parts.next().is_none()
    };
    match items {
        [one] if one == "*" => true,
        many => many.iter().all(|item| item.is_empty() || pair(item)),
    }
}

impl Validator {
    /// What is allowed, for `config describe` and the documentation. Empty when anything is.
    #[must_use]
    pub fn describe(self) -> Cow<'static, str> {
        match self {
            Self::Any => Cow::Borrowed(""),
            Self::AtLeast(min) => format!("at least {min}").into(),
            Self::Between(min, max) => format!("{min} to {max}").into(),
            Self::BetweenDouble(min, max) => format!("{min} to {max}").into(),
            Self::GzipLevel => "1 to 9, or -1".into(),
            Self::OneOf(allowed) | Self::OneOfAnyCase(allowed) => format!("one of {}", allowed.join(", ")).into(),
            Self::ListOf { allowed: [], .. } => "no item twice".into(),
            Self::ListOf { allowed, .. } => format!("any of {}", allowed.join(", ")).into(),
            Self::NonEmpty => "not empty".into(),
            Self::ThrottledReplicas => "partition:broker, …, or *".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str, kind: ConfigType, validator: Validator) -> String {
        match parse("the.name", text, kind, validator) {
            Ok(value) => panic!("{text:?} was accepted as {value:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn numbers_are_read_as_java_reads_them() {
        let long = |t| parse("n", t, ConfigType::Long, Validator::Any);
        assert_eq!(long(" +5 "), Ok(Value::Long(5)));
        assert_eq!(long("-9223372036854775808"), Ok(Value::Long(i64::MIN)));
        assert!(long("9223372036854775808").is_err());
        assert!(long("1_000").is_err());
        assert!(long("").is_err());
        let double = |t| parse("n", t, ConfigType::Double, Validator::Any);
        assert_eq!(double("0.5d"), Ok(Value::Double(0.5)));
        assert_eq!(double("1e3"), Ok(Value::Double(1000.0)));
        assert!(double("inf").is_err());
        assert!(double("0x10").is_err());
    }

    #[test]
    fn a_value_of_the_wrong_type_is_refused_with_kafkas_message() {
        assert_eq!(
            refusal("x1", ConfigType::Int, Validator::Any),
            "Invalid value x1 for configuration the.name: Not a number of type INT"
        );
        assert_eq!(
            refusal("40000", ConfigType::Short, Validator::Any),
            "Invalid value 40000 for configuration the.name: Not a number of type SHORT"
        );
        assert_eq!(
            refusal("yes", ConfigType::Boolean, Validator::Any),
            "Invalid value yes for configuration the.name: Expected value to be either true or false"
        );
    }

    #[test]
    fn a_value_out_of_bounds_is_refused_with_kafkas_message() {
        assert_eq!(
            refusal("0", ConfigType::Int, Validator::AtLeast(1)),
            "Invalid value 0 for configuration the.name: Value must be at least 1"
        );
        assert_eq!(
            refusal("18", ConfigType::Int, Validator::Between(1, 17)),
            "Invalid value 18 for configuration the.name: Value must be no more than 17"
        );
        assert_eq!(
            refusal("1.5", ConfigType::Double, Validator::BetweenDouble(0.0, 1.0)),
            "Invalid value 1.5 for configuration the.name: Value must be no more than 1"
        );
        assert_eq!(
            refusal("0", ConfigType::Int, Validator::GzipLevel),
            "Invalid value 0 for configuration the.name: Value must be between 1 and 9 or equal to -1"
        );
        assert_eq!(
            refusal("b", ConfigType::String, Validator::OneOf(&["a", "c"])),
            "Invalid value b for configuration the.name: String must be one of: a, c"
        );
    }

    #[test]
    fn a_list_refuses_duplicates_empty_items_and_strangers() {
        let some = Validator::ListOf { allowed: &["compact", "delete"], empty_allowed: false };
        let list = |t| refusal(t, ConfigType::List, some);
        assert_eq!(list("delete,delete"), "Configuration 'the.name' values must not be duplicated.");
        assert_eq!(list("delete,"), "Configuration 'the.name' values must not be empty.");
        assert_eq!(
            list("delete, keep"),
            "Invalid value keep for configuration the.name: String must be one of: compact, delete"
        );
        assert_eq!(list("  "), "Configuration 'the.name' must not be empty. Valid values include: [compact, delete]");
        assert_eq!(
            parse("n", " delete , compact ", ConfigType::List, some).map(|v| v.to_string()),
            Ok("delete,compact".to_owned())
        );
    }

    #[test]
    fn throttled_replicas_are_pairs_or_a_star_or_nothing() {
        let accepts = |t| parse("n", t, ConfigType::List, Validator::ThrottledReplicas).is_ok();
        assert!(accepts(""));
        assert!(accepts("*"));
        assert!(accepts("0:1,1:2"));
        assert!(!accepts("0"));
        assert!(!accepts("0:1,*"));
        assert!(!accepts("0:1:2"));
        assert!(!accepts("a:b"));
    }

    #[test]
    fn a_refused_password_is_not_shown() {
        let error = parse("p", "", ConfigType::Password, Validator::NonEmpty).map_err(|e| e.to_string());
        assert_eq!(error, Err("Invalid value [hidden] for configuration p: String must be non-empty".to_owned()));
    }

    #[test]
    fn doubles_are_written_as_java_writes_them() {
        let shown = |v: f64| Value::Double(v).to_string();
        assert_eq!(shown(0.5), "0.5");
        assert_eq!(shown(1.0), "1.0");
        assert_eq!(shown(0.0), "0.0");
        assert_eq!(shown(f64::MAX), "1.7976931348623157E308");
        assert_eq!(shown(1e7), "1.0E7");
        assert_eq!(shown(0.0001), "1.0E-4");
        assert_eq!(shown(123_456.789), "123456.789");
    }
}
