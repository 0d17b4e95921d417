//! Medians, spreads and ratios.

use crate::index::Measured;
use crate::meter::median;

type Repetition = Vec<(String, Measured)>;
type Field = (&'static str, fn(&Measured) -> Option<f64>, bool);

/// Name, value, and whether more is better.
const FIELDS: [Field; 8] = [
    ("apply", |measured| Some(measured.apply), true),
    ("churn", |measured| measured.churn, true),
    ("lookup", |measured| Some(measured.lookup), false),
    ("other", |measured| measured.other, false),
    ("lookup_p99", |measured| Some(measured.lookup_p99), false),
    ("heap", |measured| Some(measured.heap), false),
    ("remove", |measured| Some(measured.remove), false),
    ("left", |measured| Some(measured.left), false),
];

/// Prints what each index measured, and how ours compares: above 1 is better for rates, times and bytes alike.
pub fn print(workload: &str, repetitions: &[Repetition], json: bool) {
    let Some(first) = repetitions.first() else { return };
    let names: Vec<&String> = first.iter().map(|(name, _)| name).collect();
    for (field, value, more_is_better) in FIELDS {
        let mut ours: Vec<Option<f64>> = Vec::new();
        for name in &names {
            let values: Vec<f64> = repetitions.iter().filter_map(|rep| value(find(rep, name)?)).collect();
            if name.as_str() == "ours" {
                ours = repetitions.iter().map(|rep| value(find(rep, name)?)).collect();
            }
            if values.is_empty() {
                continue;
            }
            let ratios: Vec<f64> = repetitions
                .iter()
                .zip(&ours)
                .filter_map(|(rep, ours)| {
                    let (theirs, ours) = (value(find(rep, name)?)?, (*ours)?);
                    Some(if more_is_better { ours / theirs } else { theirs / ours })
                })
                .collect();
            line(workload, field, name, &values, &ratios, json);
        }
        if field == "lookup" {
            grouped(workload, &names, repetitions, json);
        }
    }
    for name in names {
        let wrong: usize = repetitions.iter().filter_map(|rep| find(rep, name)).map(|one| one.wrong).sum();
        println!("{workload:9} wrong      {name:7} {wrong} of {}", repetitions.len() * 300);
    }
}

/// The grouped form of ours beside the lookups of the others.
fn grouped(workload: &str, names: &[&String], repetitions: &[Repetition], json: bool) {
    for name in names.iter().filter(|name| name.as_str() != "ours") {
        let pairs: Vec<(f64, f64)> = repetitions
            .iter()
            .filter_map(|rep| Some((find(rep, "ours")?.other?, find(rep, name)?.lookup)))
            .collect();
        let values: Vec<f64> = pairs.iter().map(|(_, theirs)| *theirs).collect();
        let ratios: Vec<f64> = pairs.iter().map(|(ours, theirs)| theirs / ours).collect();
        line(workload, "grouped", name, &values, &ratios, json);
    }
}

fn find<'a>(repetition: &'a Repetition, name: &str) -> Option<&'a Measured> {
    repetition.iter().find(|(other, _)| other == name).map(|(_, measured)| measured)
}

fn line(workload: &str, field: &str, name: &str, values: &[f64], ratios: &[f64], json: bool) {
    let (mut values, mut ratios) = (values.to_vec(), ratios.to_vec());
    let (value, ratio) = (median(&mut values), median(&mut ratios));
    let ends = |sorted: &[f64]| (sorted.first().copied().unwrap_or(0.0), sorted.last().copied().unwrap_or(0.0));
    let ((low, high), (least, most)) = (ends(&values), ends(&ratios));
    if json {
        let summary = serde_json::json!({
            "workload": workload, "field": field, "index": name,
            "median": value, "min": low, "max": high, "ratio": ratio, "ratio_min": least, "ratio_max": most,
        });
        println!("{summary}");
    } else {
        println!(
            "{workload:9} {field:10} {name:7} {value:10.3}  [{low:.3} … {high:.3}]   ours is {ratio:.2} times as good [{least:.2} … {most:.2}]"
        );
    }
}
