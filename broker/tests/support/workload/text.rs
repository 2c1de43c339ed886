//! Holds: real text as payloads: lines of the sources and documentation that are found on the machine, numbered.
//! Never touches: files other than to read them.

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};

use super::Source;

/// Endings of files that hold text worth reading.
const ENDINGS: [&str; 24] = [
    "txt", "md", "rst", "rs", "py", "c", "h", "cc", "hpp", "go", "java", "js", "ts", "html", "css", "xml", "json",
    "toml", "yaml", "sh", "pl", "pm", "tcl", "1",
];
/// Longer lines are cut in pieces: a record must fit into `max.message.bytes`.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Files that are longer are not read: mostly generated tables.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Lines of real text. Payload `n` is `n`, a tab, and line `n`.
#[derive(Debug)]
pub struct Text {
    bytes: Vec<u8>,
    /// Where each line ends in `bytes`.
    ends: Vec<u64>,
}

impl Text {
    /// Collects at least `bytes_min` of text; what the machine has is taken several times if it is less than that.
    ///
    /// # Panics
    /// If there is no text at all.
    pub fn gather(bytes_min: usize) -> Text {
        let mut text = Text { bytes: Vec::with_capacity(bytes_min + FILE_BYTES_MAX as usize), ends: Vec::new() };
        for root in roots() {
            text.read_below(&root, bytes_min);
        }
        let (bytes_found, lines_found) = (text.bytes.len(), text.ends.len());
        assert!(lines_found > 0, "no text was found on this machine");
        for line in (0..lines_found).cycle() {
            if text.bytes.len() >= bytes_min {
                break;
            }
            let copy = text.line(line).to_vec();
            text.push(&copy);
        }
        println!(
            "text: {} lines, {} MB ({} MB of them read, the rest is that again)",
            text.ends.len(),
            text.bytes.len() >> 20,
            bytes_found >> 20
        );
        text
    }

    /// How many lines there are.
    pub fn lines(&self) -> u64 {
        self.ends.len() as u64
    }

    /// Bytes of all lines.
    pub fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn line(&self, number: usize) -> &[u8] {
        let start = if number == 0 { 0 } else { self.ends[number - 1] as usize };
        &self.bytes[start..self.ends[number] as usize]
    }

    fn push(&mut self, line: &[u8]) {
        self.bytes.extend_from_slice(line);
        self.ends.push(self.bytes.len() as u64);
    }

    fn read_below(&mut self, folder: &Path, bytes_min: usize) {
        let Ok(entries) = fs::read_dir(folder) else { return };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            if self.bytes.len() >= bytes_min {
                return;
            }
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            if metadata.is_dir() {
                self.read_below(&path, bytes_min);
            } else if metadata.is_file() && metadata.len() <= FILE_BYTES_MAX && is_text_name(&path) {
                self.read_file(&path);
            }
        }
    }

    fn read_file(&mut self, path: &Path) {
        // Unreadable and binary files are passed over: there is enough else.
        let Ok(content) = fs::read_to_string(path) else { return };
        if content.contains('\0') {
            return;
        }
        for line in content.lines() {
            for piece in line.as_bytes().chunks(LINE_BYTES_MAX) {
                self.push(piece);
            }
        }
    }
}

fn is_text_name(path: &Path) -> bool {
    path.extension().and_then(|ending| ending.to_str()).is_some_and(|ending| ENDINGS.contains(&ending))
}

/// Where to look, in this order. The project's own sources come last, so that there is always something.
fn roots() -> Vec<PathBuf> {
    let home = |variable: &str, below: &str| std::env::var_os(variable).map(|home| PathBuf::from(home).join(below));
    let known = ["/usr/share/doc", "/usr/share", "/usr/lib/python3", "/usr/lib/python3.11", "/usr/include", "/usr/lib"];
    let mut roots: Vec<PathBuf> = known.iter().map(PathBuf::from).collect();
    roots.extend(home("HOME", ".cargo/registry/src"));
    roots.extend(home("HOME", ".rustup/toolchains"));
    roots.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs"));
    roots.push(Path::new(env!("CARGO_MANIFEST_DIR")).to_owned());
    roots
}

impl Source for Text {
    fn payload(&self, number: u64) -> Cow<'_, [u8]> {
        let Some(number) = usize::try_from(number).ok().filter(|&number| number < self.ends.len()) else {
            return Cow::Borrowed(&[]);
        };
        let mut payload = number.to_string().into_bytes();
        payload.push(b'\t');
        payload.extend_from_slice(self.line(number));
        Cow::Owned(payload)
    }

    fn number_of(&self, payload: &[u8]) -> Option<u64> {
        let end = payload.iter().take(20).position(|&byte| byte == b'\t')?;
        std::str::from_utf8(&payload[..end]).ok()?.parse().ok()
    }
}
