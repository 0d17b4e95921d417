//! The fleet as a person reads it.

use std::collections::BTreeMap;

use serde_json::Value;

/// A column: its title, whether its cells are numbers, and what stands in them.
type Column = (&'static str, bool, fn(&Value) -> String);

const COLUMNS: [Column; 11] = [
    ("WORKER", false, |row| text(row, "worker")),
    ("RANK", true, |row| text(row, "rank")),
    ("MODEL", false, |row| text(row, "model")),
    ("STATE", false, |row| text(row, "state")),
    ("BLOCKS", true, |row| number(row, "blocks")),
    ("IN FLIGHT", true, |row| number(row, "active_requests")),
    ("WAITING", true, |row| number(row, "waiting")),
    ("KV", true, |row| percent(row, "kv_usage")),
    ("LAG", true, lag),
    ("AGREES", false, agrees),
    ("COVERAGE", true, |row| percent(row, "coverage")),
];

/// Renders a table with a line for each rank, and what they come to below.
pub(super) fn render(rows: &[Value]) -> String {
    let mut lines: Vec<Vec<String>> = vec![COLUMNS.iter().map(|(title, ..)| (*title).to_owned()).collect()];
    lines.extend(rows.iter().map(|row| COLUMNS.iter().map(|(_, _, cell)| cell(row)).collect()));
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..COLUMNS.len()).map(width).collect();
    let mut out = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths).zip(COLUMNS).map(|((cell, width), (_, is_number, _))| {
            if is_number { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
    }
    out.push_str(&summary(rows));
    out
}

/// Says how many workers are in which state, what is in flight, and whether the index can be believed.
fn summary(rows: &[Value]) -> String {
    let mut states: BTreeMap<String, String> = BTreeMap::new();
    for row in rows {
        states.insert(text(row, "worker"), text(row, "state"));
    }
    if states.is_empty() {
        return "no worker is known\n".to_owned();
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for state in states.values() {
        *counts.entry(state).or_default() += 1;
    }
    let states: Vec<String> = counts.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let in_flight: u64 = rows.iter().filter_map(|row| row["active_requests"].as_u64()).sum();
    let agreeing = rows.iter().filter(|row| row["agrees"] == true).count();
    format!(
        "{}; {} in flight; {agreeing} of {} ranks agree\n",
        states.join(", "),
        grouped(in_flight),
        rows.len()
    )
}

fn text(row: &Value, key: &str) -> String {
    match row.get(key) {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) => "-".to_owned(),
        Some(other) => other.to_string(),
    }
}

fn number(row: &Value, key: &str) -> String {
    row.get(key).and_then(Value::as_u64).map_or("-".to_owned(), grouped)
}

/// Groups digits by thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn percent(row: &Value, key: &str) -> String {
    let share = row.get(key).and_then(Value::as_f64);
    // What is not whole must not look so.
    share.map_or("-".to_owned(), |share| match share * 100.0 {
        percent if percent > 99.0 && percent < 100.0 => format!("{:.1}%", percent.min(99.9)),
        percent => format!("{percent:.0}%"),
    })
}

/// Time since the last beat.
fn lag(row: &Value) -> String {
    match row.get("lag_ms").and_then(Value::as_u64) {
        None => "-".to_owned(),
        Some(ms @ 0..1000) => format!("{ms} ms"),
        Some(ms @ 1000..60_000) => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        Some(ms) => format!("{} min", ms / 60_000),
    }
}

fn agrees(row: &Value) -> String {
    match row.get("agrees") {
        Some(Value::Bool(true)) => "yes",
        Some(Value::Bool(false)) => "no",
        _ => "-",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_person_reads_the_fleet() {
        let rows = [
            json!({"worker": "w0", "rank": 0, "model": "tiny-vl", "state": "ready", "blocks": 1_234_567,
                   "active_requests": 12, "waiting": 0, "kv_usage": 0.5, "lag_ms": 420, "agrees": true, "coverage": 1.0}),
            json!({"worker": "worker-1", "rank": 0, "model": "tiny-vl", "state": "draining", "blocks": 0,
                   "active_requests": 1, "waiting": 3, "kv_usage": 0.0, "lag_ms": 61_000, "agrees": false, "coverage": 0.9997}),
            json!({"worker": "w2", "rank": 0, "model": "tiny-vl", "state": "lost", "active_requests": 0}),
        ];
        let expected = "\
WORKER    RANK  MODEL    STATE        BLOCKS  IN FLIGHT  WAITING   KV     LAG  AGREES  COVERAGE
w0           0  tiny-vl  ready     1,234,567         12        0  50%  420 ms  yes         100%
worker-1     0  tiny-vl  draining          0          1        3   0%   1 min  no         99.9%
w2           0  tiny-vl  lost              -          0        -    -       -  -              -
1 draining, 1 lost, 1 ready; 13 in flight; 1 of 3 ranks agree
";
        assert_eq!(render(&rows), expected);
        assert!(render(&[]).ends_with("no worker is known\n"));
    }

    #[test]
    fn digits_are_grouped() {
        for (number, expected) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), expected);
        }
    }
}
