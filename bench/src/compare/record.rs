//! What a comparison came to: medians, spreads, ratios, and the page that is kept.
//!
//! Holds: results by workload and peer, and how they are set against each other. Never touches: measuring.

use std::fmt::Write as _;

use super::host;
use super::limit::{Limit, Measured};
use super::peer::Peer;
use super::workloads::{Plan, Workload};
use crate::cli::{Compare, words};
use crate::measure::result::RunResult;

/// The results of one workload against one peer.
pub struct Cell {
    workload: &'static str,
    about: &'static str,
    rate: Option<f64>,
    peer: usize,
    results: Vec<RunResult>,
}

/// A figure that is compared.
struct Figure {
    name: &'static str,
    of: fn(&RunResult) -> Option<f64>,
    digits: usize,
}

const FIGURES: [Figure; 12] = [
    Figure { name: "records/s", of: |result| Some(result.records_per_s()), digits: 0 },
    Figure { name: "MB/s", of: |result| Some(result.mb_per_s()), digits: 1 },
    Figure { name: "p50, ms", of: |result| Some(result.main()?.latency.p50 / 1e3), digits: 3 },
    Figure { name: "p99, ms", of: |result| Some(result.main()?.latency.p99 / 1e3), digits: 3 },
    Figure { name: "p99.9, ms", of: |result| Some(result.main()?.latency.p999 / 1e3), digits: 3 },
    Figure { name: "broker CPU s/GB", of: RunResult::broker_cpu_s_per_gb, digits: 3 },
    Figure { name: "broker CPU µs/request", of: RunResult::broker_cpu_us_per_request, digits: 1 },
    Figure { name: "bytes written per byte", of: RunResult::write_amplification, digits: 2 },
    Figure {
        name: "broker resident, MiB",
        of: |result| Some(result.broker_usage?.resident_bytes as f64 / (1 << 20) as f64),
        digits: 0,
    },
    Figure {
        name: "generator CPU, % of a core",
        of: |result| Some(result.own_usage.cpu_s / result.seconds * 100.0),
        digits: 0,
    },
    Figure {
        name: "others' CPU, % of a core",
        of: |result| Some(result.others_usage?.cpu_s / result.seconds * 100.0),
        digits: 0,
    },
    Figure {
        name: "stolen by the host, % of a core",
        of: |result| Some(result.others_usage?.stolen_s / result.seconds * 100.0),
        digits: 1,
    },
];

/// Everything that was measured.
pub struct Comparison {
    names: Vec<String>,
    start_s: Vec<Option<f64>>,
    command: String,
    /// The rounds of each workload.
    plans: Vec<(&'static str, Plan)>,
    warm_up: f64,
    host: String,
    /// By workload, then peer.
    pub cells: Vec<Cell>,
    /// By workload and limit, one figure a round.
    limits: Vec<(&'static str, Limit, Vec<Measured>)>,
    /// By workload and peer: rounds in which the rate was more than it could keep.
    too_fast: Vec<(&'static str, usize, usize)>,
    /// Why the comparison broke off, if it did.
    pub stopped_by: Option<String>,
    /// Whether the verifying run was clean.
    pub verified: [bool; 2],
}

impl Cell {
    /// The result in the middle, by rate (or by median latency at a fixed rate).
    pub fn middle(&self) -> Option<&RunResult> {
        let mut order: Vec<&RunResult> = self.results.iter().collect();
        let by_latency = self.rate.is_some();
        let key = |result: &RunResult| match (by_latency, result.main()) {
            (true, Some(side)) => side.latency.p99,
            _ => result.records_per_s(),
        };
        order.sort_by(|one, two| key(one).total_cmp(&key(two)));
        order.get(order.len() / 2).copied()
    }

    fn figure(&self, figure: &Figure) -> Option<Spread> {
        Spread::of(self.results.iter().filter_map(figure.of))
    }
}

/// The rounds of one figure.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spread {
    median: f64,
    low: f64,
    high: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            0 => f64::midpoint(*values.get(middle.checked_sub(1)?)?, *values.get(middle)?),
            _ => *values.get(middle)?,
        };
        Some(Self { median, low: *values.first()?, high: *values.last()? })
    }

    fn show(self, digits: usize) -> String {
        let Self { median, low, high } = self;
        format!("{median:.digits$} ({low:.digits$} – {high:.digits$})")
    }
}

impl Comparison {
    /// Nothing measured yet.
    pub fn new(options: &Compare, peers: &[Peer], chosen: &[&Workload]) -> Self {
        Self {
            names: peers.iter().map(|peer| peer.name.clone()).collect(),
            start_s: peers.iter().map(|peer| peer.start_s).collect(),
            command: format!("corelog-bench {}", words()),
            plans: chosen.iter().map(|workload| (workload.name, workload.plan(options))).collect(),
            warm_up: options.warm_up,
            host: host::describe(&options.work),
            cells: Vec::new(),
            limits: Vec::new(),
            too_fast: Vec::new(),
            stopped_by: None,
            verified: [false; 2],
        }
    }

    /// The rate of a workload was more than this peer could keep in a round.
    pub fn add_too_fast(&mut self, workload: &Workload, peer: usize) {
        match self.too_fast.iter_mut().find(|(name, of, _)| *name == workload.name && *of == peer) {
            Some((.., rounds)) => *rounds += 1,
            None => self.too_fast.push((workload.name, peer, 1)),
        }
    }

    /// That, in words.
    fn too_fast_words(&self) -> impl Iterator<Item = String> {
        self.too_fast.iter().map(|(workload, peer, rounds)| {
            let s = if *rounds == 1 { "" } else { "s" };
            let name = self.name(*peer);
            format!(
                "{name} could not keep the rate of {workload} in {rounds} round{s}: figures are of its other rounds"
            )
        })
    }

    /// Adds a result.
    pub fn add(&mut self, workload: &Workload, rate: Option<f64>, peer: usize, result: RunResult) {
        let same = |cell: &&mut Cell| cell.workload == workload.name && cell.peer == peer;
        match self.cells.iter_mut().find(same) {
            Some(cell) => cell.results.push(result),
            None => {
                let (name, about) = (workload.name, workload.about);
                self.cells.push(Cell { workload: name, about, rate, peer, results: vec![result] });
            }
        }
    }

    /// Adds a round's limits of a workload.
    pub fn add_limits(&mut self, workload: &'static str, measured: &[(Limit, Measured)]) {
        for &(limit, figures) in measured {
            match self.limits.iter_mut().find(|(name, known, _)| *name == workload && *known == limit) {
                Some((_, _, rounds)) => rounds.push(figures),
                None => self.limits.push((workload, limit, vec![figures])),
            }
        }
    }

    /// All results.
    pub fn results(&self) -> impl Iterator<Item = &RunResult> {
        self.cells.iter().flat_map(|cell| &cell.results)
    }

    fn workloads(&self) -> Vec<&'static str> {
        let mut names: Vec<&'static str> = Vec::new();
        for cell in &self.cells {
            if !names.contains(&cell.workload) {
                names.push(cell.workload);
            }
        }
        names
    }

    fn pair(&self, workload: &str) -> (Option<&Cell>, Option<&Cell>) {
        let find = |peer| self.cells.iter().find(|cell| cell.workload == workload && cell.peer == peer);
        (find(0), find(1))
    }

    /// Rows of (figure, A, B, ratio) as text.
    fn rows(&self, workload: &str) -> Vec<[String; 4]> {
        let (one, two) = self.pair(workload);
        let mut rows = Vec::new();
        for figure in &FIGURES {
            let of = |cell: Option<&Cell>| cell.and_then(|cell| cell.figure(figure));
            let (a, b) = (of(one), of(two));
            if a.is_none() && b.is_none() {
                continue;
            }
            let show = |value: Option<Spread>| value.map_or("–".into(), |value| value.show(figure.digits));
            let ratio = match (a, b) {
                (Some(a), Some(b)) if b.median != 0.0 => format!("{:.3}", a.median / b.median),
                _ => "–".into(),
            };
            rows.push([figure.name.to_owned(), show(a), show(b), ratio]);
        }
        rows.extend(self.limit_rows(workload));
        rows
    }

    /// Each limit of a workload, and what share of it each broker reaches.
    fn limit_rows(&self, workload: &str) -> Vec<[String; 4]> {
        let (one, two) = self.pair(workload);
        let cells = [one, two];
        let mut rows = Vec::new();
        for (_, limit, rounds) in self.limits.iter().filter(|(name, ..)| *name == workload) {
            let mut row =
                |unit: &str, digits, of: fn(&Measured) -> Option<f64>, ours: fn(&RunResult) -> Option<f64>| {
                    let Some(limit_is) = Spread::of(rounds.iter().filter_map(of)) else { return };
                    let share = |cell: Option<&Cell>| {
                        let ours = Spread::of(cell?.results.iter().filter_map(ours))?;
                        (limit_is.median > 0.0).then(|| format!("× {:.3}", ours.median / limit_is.median))
                    };
                    let name = format!("{unit} of {}: {}", limit.about(), limit_is.show(digits));
                    let [a, b] = cells.map(|cell| share(cell).unwrap_or("–".into()));
                    rows.push([name, a, b, String::new()]);
                };
            row("MB/s", 0, |measured| Some(measured.mb_per_s), |result| Some(result.mb_per_s()));
            row("CPU s/GB", 3, |measured| measured.cpu_s_per_gb, RunResult::broker_cpu_s_per_gb);
        }
        rows
    }

    /// One workload for the terminal.
    pub fn workload_table(&self, workload: &str) -> String {
        let mut out =
            format!("  {:<28} {:>34} {:>34} {:>8}\n", "median (lowest – highest)", self.name(0), self.name(1), "ratio");
        for [figure, a, b, ratio] in self.rows(workload) {
            let _ = writeln!(out, "  {figure:<28} {a:>34} {b:>34} {ratio:>8}");
        }
        out
    }

    fn name(&self, peer: usize) -> &str {
        self.names.get(peer).map_or("–", String::as_str)
    }

    /// All of it for the page.
    pub fn html_table(&self) -> String {
        let escape = crate::report::html::escape;
        let mut out = format!("<p>{}</p>", escape(&self.host));
        if let Some(why) = &self.stopped_by {
            let _ = write!(out, "<p class=bad>Broke off: {}.</p>", escape(why));
        }
        for words in self.too_fast_words() {
            let _ = write!(out, "<p class=bad>{}.</p>", escape(&words));
        }
        for workload in self.workloads() {
            let about = self.pair(workload).0.map_or("", |cell| cell.about);
            let _ = write!(
                out,
                "<h2>{workload}</h2><p>{}</p><table><tr><th>median (lowest – highest)<th>{}<th>{}<th>ratio",
                escape(about),
                escape(self.name(0)),
                escape(self.name(1))
            );
            for row in self.rows(workload) {
                out.push_str("<tr>");
                for cell in row {
                    let _ = write!(out, "<td>{}", escape(&cell));
                }
            }
            out.push_str("</table>");
        }
        out
    }

    /// The rounds in words, workloads with the same ones together.
    fn rounds(&self) -> String {
        let mut same: Vec<(Plan, Vec<&str>)> = Vec::new();
        for (name, plan) in &self.plans {
            match same.iter_mut().find(|(known, _)| known == plan) {
                Some((_, names)) => names.push(name),
                None => same.push((*plan, vec![name])),
            }
        }
        match &same[..] {
            [(plan, _)] => format!("{plan}, for each workload"),
            _ => {
                let each = same.iter().map(|(plan, names)| format!("{}: {plan}", names.join(", ")));
                each.collect::<Vec<_>>().join("; ")
            }
        }
    }

    /// The record to keep.
    pub fn markdown(&self) -> String {
        let mut out = format!(
            "# {} and {}\n\n```sh\n{}\n```\n\n{}\n\n{}. Rounds are interleaved, after {} s of warm-up for each broker. \
             Figures are medians of the rounds, with the lowest and the highest; the ratio is {} to {}.\n",
            self.name(0),
            self.name(1),
            self.command,
            self.host,
            self.rounds(),
            self.warm_up,
            self.name(0),
            self.name(1)
        );
        if let Some(why) = &self.stopped_by {
            let _ = writeln!(
                out,
                "\n**Broke off: {why}.** Figures of workloads with fewer rounds, or of one broker alone, are what there was until then."
            );
        }
        for words in self.too_fast_words() {
            let _ = writeln!(out, "\n**{words}.**");
        }
        for (peer, name) in self.names.iter().enumerate() {
            if let Some(Some(seconds)) = self.start_s.get(peer) {
                let _ = writeln!(out, "\nStart-up to the first answer, {name}: {seconds:.3} s.");
            }
        }
        for workload in self.workloads() {
            let cell = self.pair(workload).0;
            let at =
                cell.and_then(|cell| cell.rate).map(|rate| format!(" At {rate:.0} records/s.")).unwrap_or_default();
            let about = cell.map_or("", |cell| cell.about);
            let _ = write!(
                out,
                "\n## {workload}\n\n{about}.{at}\n\n| median (lowest – highest) | {} | {} | ratio |\n|---|---|---|---|\n",
                self.name(0),
                self.name(1)
            );
            for [figure, a, b, ratio] in self.rows(workload) {
                let _ = writeln!(out, "| {figure} | {a} | {b} | {ratio} |");
            }
        }
        for (name, clean) in self.names.iter().zip(self.verified) {
            let verdict = if clean { "clean" } else { "not reached" };
            let _ = writeln!(out, "\n`verify` after it, {name}: {verdict}.");
        }
        out
    }
}

/// A run in one line.
pub fn run_line(result: &RunResult) -> String {
    let latency = result.main().map(|side| side.latency.clone()).unwrap_or_default();
    let [p50, p99, p999] = [latency.p50, latency.p99, latency.p999].map(|us| us / 1e3);
    let cost = result.broker_cpu_s_per_gb().map(|cost| format!("{cost:.2} CPU s/GB")).unwrap_or_default();
    format!(
        "{:<12} {:>9.0} records/s {:>7.1} MB/s  p50 {p50:.3} p99 {p99:.3} p99.9 {p999:.3} ms  {cost}",
        result.broker,
        result.records_per_s(),
        result.mb_per_s()
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::workloads::{special, standard};
    use super::*;
    use crate::cli::{Cli, Command};

    fn head(names: &[&str]) -> String {
        let words = ["corelog-bench", "compare", "a", "b", "--rounds", "3", "--duration", "15", "--warm-up", "60"];
        let Command::Compare(options) = Cli::parse_from(words).command else { panic!("not a comparison") };
        let all: Vec<Workload> = standard().into_iter().chain(special()).collect();
        let chosen: Vec<&Workload> = all.iter().filter(|workload| names.contains(&workload.name)).collect();
        let record = Comparison::new(&options, &[], &chosen).markdown();
        record.lines().find(|line| line.contains("Rounds are interleaved")).unwrap().to_owned()
    }

    #[test]
    fn a_record_says_in_its_head_how_long_the_rounds_were_also_of_workloads_that_have_their_own() {
        let one = head(&["small", "latency"]);
        assert!(one.starts_with("3 rounds of 15 s, behind 2 s of the same load, for each workload. "), "{one}");
        assert!(one.contains("after 60 s of warm-up"), "{one}");
        let own = head(&["retained", "compacted"]);
        assert!(own.starts_with("3 rounds of 20 s, behind 10 s of the same load, for each workload. "), "{own}");
        let mixed = head(&["small", "sustained", "partitions-16", "partitions-10000", "retained"]);
        let expected = "sustained: 1 round of 30 GB, behind 2 s of the same load; \
                        small: 3 rounds of 15 s, behind 2 s of the same load; \
                        partitions-16, partitions-10000: 3 rounds of 20 s, behind 20 s of the same load; \
                        retained: 3 rounds of 20 s, behind 10 s of the same load. ";
        assert!(mixed.starts_with(expected), "{mixed}");
    }
}
