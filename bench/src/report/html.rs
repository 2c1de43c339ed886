//! A page with plots that needs nothing but a browser: no scripts from elsewhere, no network.
//!
//! Holds: SVG of percentile curves and time lines, tables beside them. Never touches: measuring.

use std::fmt::Write as _;

use crate::measure::result::RunResult;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 70.0;
const BOTTOM: f64 = 40.0;
const TOP: f64 = 12.0;
/// Told apart also by those who see few colours, and by their dashes in print.
const COLOURS: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999"];

struct Line<'a> {
    name: &'a str,
    points: Vec<(f64, f64)>,
}

/// The whole page; `extra` is put below the title as it is (already HTML).
pub fn page(title: &str, results: &[RunResult], extra: &str) -> String {
    let names: Vec<String> = results.iter().map(|result| format!("{} · {}", result.broker, short(result))).collect();
    let mut out = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><title>{0}</title><style>\
         body{{font:15px/1.5 system-ui,sans-serif;max-width:960px;margin:2em auto;padding:0 1em;color:#222}}\
         table{{border-collapse:collapse;margin:1em 0;font-variant-numeric:tabular-nums}}\
         td,th{{padding:.25em .7em;border-bottom:1px solid #ddd;text-align:right}}th{{background:#f6f6f6}}\
         td:first-child,th:first-child{{text-align:left}}svg{{width:100%;height:auto}}\
         .bad{{color:#b00}}</style><h1>{0}</h1>{extra}",
        escape(title)
    );
    out.push_str(
        "<table><tr><th>run<th>records/s<th>MB/s<th>p50 ms<th>p99 ms<th>p99.9 ms<th>max ms<th>broker CPU s/GB<th>MiB",
    );
    for (result, name) in results.iter().zip(&names) {
        let latency = result.main().map(|side| side.latency.clone()).unwrap_or_default();
        let [p50, p99, p999, max] = [latency.p50, latency.p99, latency.p999, latency.max].map(|us| us / 1e3);
        let optional = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.2}"));
        let memory = result.broker_usage.map(|usage| usage.resident_bytes as f64 / (1 << 20) as f64);
        let broke = result.stopped_by.as_deref();
        let broke = broke.map(|why| format!("<br><span class=bad>broke off: {}</span>", escape(why)));
        let _ = write!(
            out,
            "<tr><td>{}{}<td>{:.0}<td>{:.1}<td>{p50:.3}<td>{p99:.3}<td>{p999:.3}<td>{max:.3}<td>{}<td>{}",
            escape(name),
            broke.unwrap_or_default(),
            result.records_per_s(),
            result.mb_per_s(),
            optional(result.broker_cpu_s_per_gb()),
            optional(memory)
        );
    }
    out.push_str("</table>");

    let curves = results.iter().zip(&names).filter_map(|(result, name)| {
        let points = result.main()?.curve.iter().filter(|point| point.quantile < 1.0);
        // The axis is the number of nines: 0 for the median's half, 1 at 90 %, 2 at 99 %.
        let points = points.map(|point| (-(1.0 - point.quantile).log10(), (point.us / 1e3).max(1e-4))).collect();
        Some(Line { name, points })
    });
    out.push_str("<h2>Latency by percentile, from when each record was due</h2>");
    plot(&mut out, &curves.collect::<Vec<_>>(), "ms", true, &percentile_ticks());

    let seconds = |what: fn(&crate::measure::latency::Interval) -> f64| -> Vec<Line<'_>> {
        let lines = results.iter().zip(&names).filter_map(|(result, name)| {
            let timeline = &result.main()?.timeline;
            Some(Line { name, points: timeline.iter().map(|second| (second.at_s, what(second))).collect() })
        });
        lines.collect()
    };
    out.push_str("<h2>Records a second, by second</h2>");
    plot(&mut out, &seconds(|second| second.records as f64), "", false, &[]);
    out.push_str("<h2>99th percentile of each second</h2>");
    plot(&mut out, &seconds(|second| second.latency.p99 / 1e3), "ms", true, &[]);
    out.push_str("<h2>Options</h2><ul>");
    for (result, name) in results.iter().zip(&names) {
        let _ = write!(out, "<li>{}: <code>{}</code>", escape(name), escape(&result.workload));
    }
    out.push_str("</ul></html>\n");
    out
}

fn short(result: &RunResult) -> String {
    if result.workload.len() <= 40 { result.workload.clone() } else { result.kind.clone() }
}

fn percentile_ticks() -> Vec<(f64, String)> {
    ["0", "90", "99", "99.9", "99.99", "99.999", "99.9999"]
        .iter()
        .enumerate()
        .map(|(nines, label)| (nines as f64, format!("{label} %")))
        .collect()
}

fn plot(out: &mut String, lines: &[Line<'_>], unit: &str, logarithmic: bool, ticks: &[(f64, String)]) {
    let all = || lines.iter().flat_map(|line| &line.points).filter(|point| !logarithmic || point.1 > 0.0);
    if all().next().is_none() {
        out.push_str("<p>Nothing was counted.</p>");
        return;
    }
    let x_max = all().map(|point| point.0).fold(0.0, f64::max).max(1e-9);
    let (mut y_min, mut y_max) =
        all().fold((f64::MAX, 0.0_f64), |(low, high), point| (low.min(point.1), high.max(point.1)));
    if logarithmic {
        y_min = 10f64.powf(y_min.log10().floor());
        y_max = 10f64.powf(y_max.log10().ceil()).max(y_min * 10.0);
    } else {
        y_min = 0.0;
        y_max = nice(y_max);
    }
    let x = |value: f64| LEFT + value / x_max * (WIDTH - LEFT - 10.0);
    let y = |value: f64| {
        let share = if logarithmic {
            (value.max(y_min).log10() - y_min.log10()) / (y_max.log10() - y_min.log10())
        } else {
            value / y_max
        };
        HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)
    };
    let _ = write!(out, "<svg viewBox='0 0 {WIDTH} {HEIGHT}' font-size=12 role=img>");
    let y_ticks: Vec<f64> = if logarithmic {
        let decades = (y_max / y_min).log10().round() as i32;
        (0..=decades).map(|decade| y_min * 10f64.powi(decade)).collect()
    } else {
        (0..=4).map(|quarter| y_max * f64::from(quarter) / 4.0).collect()
    };
    for value in y_ticks {
        let at = y(value);
        let _ = write!(
            out,
            "<line x1={LEFT} x2={WIDTH} y1={at:.1} y2={at:.1} stroke=#e4e4e4 /><text x={} y={:.1} text-anchor=end>{} {unit}</text>",
            LEFT - 6.0,
            at + 4.0,
            number(value)
        );
    }
    let own: Vec<(f64, String)> = if ticks.is_empty() {
        (0..=5).map(|fifth| x_max * f64::from(fifth) / 5.0).map(|at| (at, seconds(at, x_max))).collect()
    } else {
        ticks.iter().filter(|tick| tick.0 <= x_max).cloned().collect()
    };
    for (at, label) in own {
        let _ = write!(out, "<text x={:.1} y={} text-anchor=middle>{label}</text>", x(at), HEIGHT - BOTTOM + 18.0);
    }
    let below = if ticks.is_empty() { "seconds since the start of what counts" } else { "percentile" };
    let _ = write!(out, "<text x={:.1} y={} text-anchor=middle fill=#666>{below}</text>", x(x_max / 2.0), HEIGHT - 5.0);
    for (index, line) in lines.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let dash = ["", "6 3", "2 3", "8 3 2 3"][index / COLOURS.len() % 4];
        // Where nothing was answered there is no latency: a gap, not a slope to the next second that has one.
        let stretches = line.points.split(|point| logarithmic && point.1 <= 0.0).filter(|stretch| !stretch.is_empty());
        for (number, stretch) in stretches.enumerate() {
            let mut points: Vec<String> =
                stretch.iter().map(|point| format!("{:.1},{:.1}", x(point.0), y(point.1))).collect();
            // A single point is drawn as a line to itself: a dot, by its round ends.
            if let [alone] = points.as_slice() {
                points.push(alone.clone());
            }
            let title = if number == 0 { format!("<title>{}</title>", escape(line.name)) } else { String::new() };
            let _ = write!(
                out,
                "<polyline fill=none stroke='{colour}' stroke-width=1.8 stroke-linecap=round stroke-dasharray='{dash}' points='{}'>{title}</polyline>",
                points.join(" "),
            );
        }
    }
    out.push_str("</svg><p>");
    for (index, line) in lines.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let _ = write!(out, "<span style='color:{colour}'>■</span> {} &nbsp; ", escape(line.name));
    }
    out.push_str("</p>");
}

/// A moment of a run of `all` seconds: as exact as its ticks are far apart.
fn seconds(at: f64, all: f64) -> String {
    if all < 10.0 { format!("{at:.1} s") } else { format!("{at:.0} s") }
}

/// The next round number above.
fn nice(value: f64) -> f64 {
    let base = 10f64.powf(value.max(1e-9).log10().floor());
    [1.0, 2.0, 4.0, 5.0, 8.0, 10.0]
        .iter()
        .map(|step| step * base)
        .find(|candidate| *candidate >= value)
        .unwrap_or(value)
}

fn number(value: f64) -> String {
    if value >= 1e6 {
        format!("{:.3}M", value / 1e6)
    } else if value >= 1.0 || value == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value}")
    }
}

/// Text as HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\'', "&#39;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::latency::{CurvePoint, Interval, Percentiles};
    use crate::measure::result::Side;

    #[test]
    fn a_page_holds_every_run_and_reaches_for_nothing_outside() {
        let second = Interval {
            at_s: 1.0,
            records: 1000,
            bytes: 5000,
            latency: Percentiles { count: 1000, p99: 900.0, ..Percentiles::default() },
        };
        let side = Side {
            records: 1000,
            timeline: vec![second.clone(), Interval { at_s: 2.0, ..second }],
            curve: [0.0, 0.5, 0.99].map(|quantile| CurvePoint { quantile, us: 100.0 + quantile }).to_vec(),
            ..Side::default()
        };
        let result = RunResult {
            kind: "produce".into(),
            broker: "<script>alert(1)</script>".into(),
            seconds: 2.0,
            stopped_by: Some("the broker went away".into()),
            produced: Some(side),
            ..RunResult::default()
        };
        let page = page("A & B", &[result.clone(), result], "");
        assert_eq!(page.matches("<polyline").count(), 6);
        assert!(page.contains(">0.4 s<") && page.contains(">seconds since the start of what counts<"), "{page}");
        assert!(page.contains("broke off: the broker went away") && page.contains("A &amp; B"));
        assert!(!page.contains("<script") && !page.contains("http"));
    }

    #[test]
    fn a_second_without_answers_is_a_gap_in_the_latencies_and_a_zero_in_the_rates() {
        let second = |at_s: f64, records: u64| Interval {
            at_s,
            records,
            bytes: 0,
            latency: Percentiles { count: records, p99: records as f64, ..Percentiles::default() },
        };
        let timeline = vec![second(1.0, 10), second(2.0, 20), second(3.0, 0), second(4.0, 10)];
        let result = RunResult { produced: Some(Side { timeline, ..Side::default() }), ..RunResult::default() };
        let page = page("gap", &[result], "");
        let points = |line: &str| {
            line.split("points='").nth(1).map_or(0, |rest| rest.split('\'').next().unwrap().split(' ').count())
        };
        let lines: Vec<usize> = page.split("<polyline").skip(1).map(points).collect();
        // The rates of four seconds; then the latencies of the first two, and of the last, a dot.
        assert_eq!(lines, [4, 2, 2], "{page}");
    }

    #[test]
    fn a_run_without_any_answer_still_makes_a_page() {
        assert!(page("empty", &[RunResult::default()], "").contains("Nothing was counted"));
    }
}
