//! Results on disk.

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::error::BenchError;
use crate::measure::result::RunResult;

/// Looks whether a file can be written there, and leaves what is in it.
///
/// # Errors
/// It can't.
pub fn can_be_written(path: &Path) -> Result<(), BenchError> {
    fs::OpenOptions::new().append(true).create(true).open(path).map(drop).map_err(BenchError::file(path))
}

/// Writes `value` as JSON.
///
/// # Errors
/// The file can't be written.
pub fn json(path: &Path, value: &impl Serialize) -> Result<(), BenchError> {
    let text = serde_json::to_string_pretty(value).map_err(|error| BenchError::Setup(error.to_string()))?;
    self::text(path, &(text + "\n"))
}

/// Writes text.
///
/// # Errors
/// The file can't be written.
pub fn text(path: &Path, text: &str) -> Result<(), BenchError> {
    bytes(path, text.as_bytes())
}

/// Writes bytes.
///
/// # Errors
/// The file can't be written.
pub fn bytes(path: &Path, bytes: &[u8]) -> Result<(), BenchError> {
    fs::write(path, bytes).map_err(BenchError::file(path))
}

/// Reads one result, or an array of them.
///
/// # Errors
/// The file can't be read, or holds something else.
pub fn read_results(path: &Path) -> Result<Vec<RunResult>, BenchError> {
    let text = fs::read_to_string(path).map_err(BenchError::file(path))?;
    serde_json::from_str::<Vec<RunResult>>(&text)
        .or_else(|_| serde_json::from_str::<RunResult>(&text).map(|result| vec![result]))
        .map_err(|error| BenchError::Usage(format!("{}: no result of this tool: {error}", path.display())))
}
