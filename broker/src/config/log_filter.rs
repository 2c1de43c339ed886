//! What `CORELOG_LOG` asks of the log.
//!
//! Holds: the check of its text. A filter that means nothing would silence the log without a word, so it is refused.
//! Never touches: the log itself.

use thiserror::Error;
use tracing::level_filters::LevelFilter;

/// The variable.
pub const VARIABLE: &str = "CORELOG_LOG";
/// What counts when it is not set.
const DEFAULT: &str = "info";
/// The parts of the broker, by the names under which they log.
const PARTS: [&str; 5] = ["corelog_broker", "corelog_net", "corelog_reactor", "corelog_storage", "corelog_tune"];

/// A filter that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilter(String);

impl Default for LogFilter {
    fn default() -> Self {
        Self(DEFAULT.to_owned())
    }
}

/// Why a filter is none.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{VARIABLE}={text}: `{directive}` {reason}. Write a level (off, error, warn, info, debug, trace), or parts with levels of \
     their own: {VARIABLE}=info,corelog_storage=debug. The parts are {}", PARTS.join(", ")
)]
pub struct LogFilterError {
    text: String,
    directive: String,
    reason: &'static str,
}

impl LogFilter {
    /// Checks a filter: levels and `part=level`, separated by commas. An empty one is the default.
    ///
    /// # Errors
    /// [`LogFilterError`] for what would change nothing.
    pub fn parse(text: &str) -> Result<Self, LogFilterError> {
        let directives: Vec<&str> = text.split(',').map(str::trim).filter(|directive| !directive.is_empty()).collect();
        for directive in &directives {
            check(directive).map_err(|reason| LogFilterError {
                text: text.to_owned(),
                directive: (*directive).to_owned(),
                reason,
            })?;
        }
        Ok(if directives.is_empty() { Self::default() } else { Self(directives.join(",")) })
    }

    /// Its text, for the subscriber.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn check(directive: &str) -> Result<(), &'static str> {
    let is_level = |text: &str| text.parse::<LevelFilter>().is_ok();
    match directive.split_once('=') {
        None if is_level(directive) || is_part(directive) => Ok(()),
        None => Err("is neither a level nor a part"),
        Some((part, _)) if !is_part(part) => Err("names no part"),
        Some((_, level)) if !is_level(level) => Err("names no level"),
        Some(_) => Ok(()),
    }
}

/// A part, something within it, or what several of them begin with: that is how the filter understands it.
fn is_part(text: &str) -> bool {
    let name = text.split("::").next().unwrap_or(text);
    let is_path = text.split("::").all(|step| !step.is_empty());
    is_path
        && PARTS
            .iter()
            .any(|part| *part == name || text == name && name.starts_with("corelog") && part.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_parts_are_filters() {
        for text in [
            "debug",
            "OFF",
            "corelog_broker=debug,info",
            " info , corelog_storage=trace ",
            "corelog=debug",
            "corelog_broker::shard::accept=warn",
            "corelog_net",
        ] {
            let filter = LogFilter::parse(text).unwrap_or_else(|error| panic!("{error}"));
            let built = tracing_subscriber::EnvFilter::try_new(filter.as_str());
            assert!(built.is_ok(), "{text}: {built:?}");
        }
        assert_eq!(LogFilter::parse(" ,"), Ok(LogFilter::default()));
    }

    #[test]
    fn what_would_silence_the_log_or_change_nothing_is_refused_with_an_example() {
        for text in
            ["debg", "corelog_broker=loud", "corelog_brokr=debug,info", "a=b=c", "info,hyper=debug", "=info", "c"]
        {
            let Err(error) = LogFilter::parse(text) else { panic!("{text} is accepted") };
            let error = error.to_string();
            assert!(error.starts_with(&format!("CORELOG_LOG={text}: `")), "{error}");
            assert!(error.contains("CORELOG_LOG=info,corelog_storage=debug"), "{error}");
        }
    }
}
