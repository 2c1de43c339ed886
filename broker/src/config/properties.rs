//! Java's `.properties` format, in which Kafka's configuration files are written.
//!
//! Holds: the parser (Javadoc of `java.util.Properties.load`). Never touches: files, what the properties mean.
//!
//! A line is `key=value`, `key:value` or `key value`. `#` and `!` start a comment; a backslash at the end of a line
//! joins the next one, without its leading white space; `\t \n \r \f \uXXXX` and `\` before anything else are escapes.

use std::iter::Peekable;
use std::str::Chars;

/// One property of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// Its name, unescaped.
    pub key: String,
    /// Its value, unescaped.
    pub value: String,
    /// The line that it starts on, counted from 1.
    pub line: usize,
}

/// Where and why a file is malformed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PropertiesError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong.
    pub reason: &'static str,
}

/// Reads the text of a file. A key may occur more than once: the last one counts, as in Java.
///
/// # Errors
/// [`PropertiesError`] for a malformed `\u` escape; everything else means something.
pub fn parse(text: &str) -> Result<Vec<Property>, PropertiesError> {
    let mut properties = Vec::new();
    let mut lines = natural_lines(text).enumerate();
    while let Some((at, first)) = lines.next() {
        let line = at + 1;
        let first = first.trim_start_matches(is_blank);
        if first.is_empty() || first.starts_with(['#', '!']) {
            continue;
        }
        let mut logical = first.to_owned();
        while ends_in_continuation(&logical) {
            logical.pop();
            match lines.next() {
                Some((_, next)) => logical.push_str(next.trim_start_matches(is_blank)),
                None => break,
            }
        }
        let (key, value) = split(&logical).map_err(|reason| PropertiesError { line, reason })?;
        properties.push(Property { key, value, line });
    }
    Ok(properties)
}

const fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\u{c}')
}

/// The lines of a text; each ends with `\n`, `\r` or `\r\n`. A byte order mark is dropped.
fn natural_lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text.strip_prefix('\u{feff}').unwrap_or(text));
    std::iter::from_fn(move || {
        let now = rest?;
        match now.find(['\n', '\r']) {
            Some(end) => {
                let (line, behind) = now.split_at(end);
                rest = Some(behind.strip_prefix("\r\n").or_else(|| behind.get(1..)).unwrap_or(""));
                Some(line)
            }
            None => {
                rest = None;
                Some(now)
            }
        }
    })
}

/// An odd number of backslashes at the end: the last one joins the next line.
fn ends_in_continuation(line: &str) -> bool {
    line.bytes().rev().take_while(|&b| b == b'\\').count() % 2 == 1
}

fn split(line: &str) -> Result<(String, String), &'static str> {
    let mut chars = line.chars().peekable();
    let mut key = String::new();
    while let Some(&c) = chars.peek() {
        if is_blank(c) || matches!(c, '=' | ':') {
            break;
        }
        chars.next();
        key.push(unescaped(c, &mut chars)?);
    }
    // White space, then at most one `=` or `:`, then white space.
    while chars.next_if(|&c| is_blank(c)).is_some() {}
    if chars.next_if(|&c| matches!(c, '=' | ':')).is_some() {
        while chars.next_if(|&c| is_blank(c)).is_some() {}
    }
    let mut value = String::new();
    while let Some(c) = chars.next() {
        value.push(unescaped(c, &mut chars)?);
    }
    Ok((key, value))
}

fn unescaped(c: char, rest: &mut Peekable<Chars<'_>>) -> Result<char, &'static str> {
    if c != '\\' {
        return Ok(c);
    }
    Ok(match rest.next() {
        Some('t') => '\t',
        Some('n') => '\n',
        Some('r') => '\r',
        Some('f') => '\u{c}',
        Some('u') => return unicode(rest),
        Some(other) => other,
        // A lone backslash at the end of the file.
        None => '\u{0}',
    })
}

fn unicode(rest: &mut Peekable<Chars<'_>>) -> Result<char, &'static str> {
    let high = four_digits(rest)?;
    if !(0xd800..0xdc00).contains(&high) {
        return char::from_u32(high).ok_or("a \\u escape is half of a surrogate pair");
    }
    // Java's strings are UTF-16: a character outside the first 65536 takes two escapes.
    if rest.next() != Some('\\') || rest.next() != Some('u') {
        return Err("a \\u escape is half of a surrogate pair");
    }
    let low = four_digits(rest)?;
    char::decode_utf16([high as u16, low as u16])
        .next()
        .and_then(Result::ok)
        .ok_or("a \\u escape is half of a surrogate pair")
}

fn four_digits(rest: &mut Peekable<Chars<'_>>) -> Result<u32, &'static str> {
    let mut number = 0;
    for _ in 0..4 {
        let digit = rest.next().and_then(|c| c.to_digit(16)).ok_or("a \\u escape needs four hexadecimal digits")?;
        number = number * 16 + digit;
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        match parse(text) {
            Ok(properties) => properties.into_iter().map(|p| (p.key, p.value)).collect(),
            Err(error) => panic!("{error:?}"),
        }
    }

    fn one(text: &str) -> (String, String) {
        let all = pairs(text);
        assert_eq!(all.len(), 1, "{all:?}");
        all.into_iter().next().unwrap_or_default()
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn equals_colon_and_white_space_separate_key_and_value() {
        for text in ["a=1", "a = 1", "a:1", "a 1", "  a\t=  1", "a   1", "a : 1"] {
            assert_eq!(one(text), pair("a", "1"), "{text:?}");
        }
        assert_eq!(one("a==1"), pair("a", "=1"));
        assert_eq!(one("a"), pair("a", ""));
        assert_eq!(one("a="), pair("a", ""));
        assert_eq!(one("a=1 "), pair("a", "1 "), "trailing white space belongs to the value");
    }

    #[test]
    fn comments_and_empty_lines_are_skipped_and_do_not_continue() {
        assert_eq!(pairs("# one \\\n! two\n\n   \t\n  # three\na=1\n#b=2"), [pair("a", "1")]);
    }

    #[test]
    fn a_backslash_at_the_end_joins_the_next_line() {
        assert_eq!(one("a=1,\\\n   2,\\\r\n\t3"), pair("a", "1,2,3"));
        assert_eq!(one("a=1\\\\"), pair("a", "1\\"), "an escaped backslash joins nothing");
        assert_eq!(one("a=1\\\n"), pair("a", "1"));
        assert_eq!(one("a=1\\\n# no comment here"), pair("a", "1# no comment here"));
    }

    #[test]
    fn escapes_are_resolved_in_keys_and_values() {
        assert_eq!(one(r"a\ b\=c=d\te\\f"), pair("a b=c", "d\te\\f"));
        assert_eq!(one(r"a=\u00e4\u20AC"), pair("a", "\u{e4}\u{20ac}"));
        assert_eq!(one(r"a=\ud83d\ude00"), pair("a", "\u{1f600}"));
        assert_eq!(one(r"a=C\:\\data"), pair("a", "C:\\data"));
    }

    #[test]
    fn a_broken_unicode_escape_is_refused_with_its_line() {
        assert_eq!(
            parse("a=1\nb=\\u12"),
            Err(PropertiesError { line: 2, reason: "a \\u escape needs four hexadecimal digits" })
        );
        assert!(parse(r"a=\ud83d").is_err());
    }

    #[test]
    fn a_property_knows_the_line_it_starts_on() {
        let parsed = parse("\n# c\na=1\\\n  2\rb=3\r\nc=4");
        let lines: Vec<(String, usize)> = parsed.unwrap_or_default().into_iter().map(|p| (p.key, p.line)).collect();
        assert_eq!(lines, [("a".to_owned(), 3), ("b".to_owned(), 5), ("c".to_owned(), 6)]);
    }
}
