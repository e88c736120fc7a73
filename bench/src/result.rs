//! A result: samples of each measurement, the table for people, and the file with everything.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use comfy_table::{CellAlignment, Table, presets::UTF8_FULL_CONDENSED};
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::machine::{Machine, Noise, process_cpu_s};

/// Spread of the samples, (largest - smallest) / median, above which a metric is marked.
const SPREAD_MAX: f64 = 0.15;

/// Makes an empty histogram of latencies in nanoseconds, up to ten minutes.
pub(crate) fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("constant bounds that it takes")
}

/// One thing measured several times. Metrics are named with their unit.
#[derive(Clone, Debug)]
pub(crate) struct Measurement {
    name: String,
    parameters: BTreeMap<&'static str, String>,
    samples: Vec<(&'static str, Vec<f64>)>,
    latency: Histogram<u64>,
}

impl Measurement {
    /// Starts an empty measurement.
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            parameters: BTreeMap::new(),
            samples: Vec::new(),
            latency: new_histogram(),
        }
    }

    /// Returns its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// States a parameter.
    pub(crate) fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.parameters.insert(name, value.to_string());
        self
    }

    /// Adds a sample of the metric `name`.
    pub(crate) fn sample(&mut self, name: &'static str, value: f64) {
        match self.samples.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) => values.push(value),
            None => self.samples.push((name, vec![value])),
        }
    }

    /// Adds latencies, in nanoseconds.
    pub(crate) fn add_latency(&mut self, latency: &Histogram<u64>) {
        self.latency.add(latency).expect("histograms of equal bounds");
    }

    /// Returns the median of the metric `name`, if it was sampled.
    pub(crate) fn median(&self, name: &str) -> Option<f64> {
        let values = self.values(name);
        (!values.is_empty()).then(|| median(values))
    }

    /// Returns the samples of the metric `name`, in their order.
    pub(crate) fn values(&self, name: &str) -> &[f64] {
        self.samples.iter().find(|(known, _)| *known == name).map_or(&[], |(_, values)| values)
    }

    fn metric_names(&self) -> Vec<&'static str> {
        self.samples.iter().map(|(name, _)| *name).collect()
    }

    fn spreads(&self) -> impl Iterator<Item = (&'static str, f64)> {
        self.samples.iter().map(|(name, values)| (*name, spread(values)))
    }

    fn to_file(&self) -> MeasurementFile<'_> {
        let recorded = self.latency.iter_recorded();
        MeasurementFile {
            name: &self.name,
            parameters: &self.parameters,
            medians: self.samples.iter().map(|(name, values)| (*name, median(values))).collect(),
            samples: self.samples.iter().map(|(name, values)| (*name, &values[..])).collect(),
            latency_ns: recorded.map(|v| (v.value_iterated_to(), v.count_at_value())).collect(),
        }
    }
}

#[derive(Serialize)]
struct MeasurementFile<'a> {
    name: &'a str,
    parameters: &'a BTreeMap<&'static str, String>,
    medians: BTreeMap<&'static str, f64>,
    samples: BTreeMap<&'static str, &'a [f64]>,
    /// Raw histogram: pairs of latency in nanoseconds and count.
    latency_ns: Vec<(u64, u64)>,
}

#[derive(Serialize)]
struct ResultFile<'a> {
    benchmark: &'static str,
    unix_time_s: u64,
    machine: &'a Machine,
    command: Vec<String>,
    config: BTreeMap<&'static str, String>,
    warnings: &'a [String],
    measurements: Vec<MeasurementFile<'a>>,
    /// Figures made of several measurements, such as ratios to a limit of the machine.
    derived: &'a BTreeMap<String, f64>,
    bars: &'a [Bar],
}

/// A figure that must not be above a limit.
#[derive(Serialize, Clone, Debug)]
struct Bar {
    name: String,
    /// The median counts.
    median: f64,
    samples: Vec<f64>,
    allowed: f64,
    holds: bool,
}

/// A run in the making.
pub(crate) struct Run {
    benchmark: &'static str,
    config: BTreeMap<&'static str, String>,
    machine: Machine,
    noise: Noise,
    measurements: Vec<Measurement>,
    derived: BTreeMap<String, f64>,
    bars: Vec<Bar>,
    /// CPU time of processes that the run started and that have ended.
    children_s: f64,
}

impl Run {
    /// Looks at the machine and starts to watch its noise.
    pub(crate) fn start(benchmark: &'static str) -> Self {
        let machine = Machine::look();
        for warning in machine.warnings() {
            eprintln!("warning: {warning}");
        }
        Self {
            benchmark,
            config: BTreeMap::new(),
            machine,
            noise: Noise::start(),
            measurements: Vec::new(),
            derived: BTreeMap::new(),
            bars: Vec::new(),
            children_s: 0.0,
        }
    }

    /// Notes how the run was set up.
    pub(crate) fn note(&mut self, name: &'static str, value: impl ToString) {
        self.config.insert(name, value.to_string());
    }

    /// Adds a measurement.
    pub(crate) fn add(&mut self, measurement: Measurement) {
        self.measurements.push(measurement);
    }

    /// Adds a figure made of several measurements.
    pub(crate) fn derive(&mut self, name: impl Into<String>, value: f64) {
        self.derived.insert(name.into(), value);
    }

    /// Holds the median of `samples` against the largest value that is `allowed`.
    pub(crate) fn bar(&mut self, name: impl Into<String>, samples: &[f64], allowed: f64) {
        let median = median(samples);
        let (name, samples) = (name.into(), samples.to_vec());
        self.bars.push(Bar { name, median, samples, allowed, holds: median <= allowed });
    }

    /// Counts CPU time of another process as the run's own.
    pub(crate) fn own_child(&mut self, cpu_s: f64) {
        self.children_s += cpu_s;
    }

    /// Prints the tables and the warnings, and writes the file.
    pub(crate) fn finish(self, output: Option<&Path>) -> anyhow::Result<()> {
        let mut warnings = self.machine.warnings();
        let own_s = process_cpu_s(std::process::id()) + self.children_s;
        warnings.extend(self.noise.warnings(own_s));
        warnings.extend(self.spread_warning());
        self.print_tables();
        for (name, value) in &self.derived {
            println!("{name}: {value:.3}");
        }
        self.print_bars();
        for warning in &warnings {
            println!("warning: {warning}");
        }
        let unix_time_s = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let file = ResultFile {
            benchmark: self.benchmark,
            unix_time_s,
            machine: &self.machine,
            command: std::env::args().collect(),
            config: self.config.clone(),
            warnings: &warnings,
            measurements: self.measurements.iter().map(Measurement::to_file).collect(),
            derived: &self.derived,
            bars: &self.bars,
        };
        let path = output.map_or_else(
            || PathBuf::from(format!("target/bench/{}-{unix_time_s}.json", self.benchmark)),
            Path::to_owned,
        );
        write(&path, &serde_json::to_vec(&file)?)?;
        println!("written to {}", path.display());
        Ok(())
    }

    /// Says in one line how many figures differ from sample to sample, and which one most.
    fn spread_warning(&self) -> Option<String> {
        let spreads = self.measurements.iter().flat_map(|measurement| {
            let of_one = measurement.spreads().filter(|(_, spread)| *spread > SPREAD_MAX);
            of_one.map(|(metric, spread)| (spread, &measurement.name, metric))
        });
        let wide: Vec<_> = spreads.collect();
        let (spread, name, metric) = wide.iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
        Some(format!(
            "{} figures spread over more than {:.0} % of their median from sample to sample, most \
             of all {metric} of {name}: {:.0} %",
            wide.len(),
            SPREAD_MAX * 100.0,
            spread * 100.0
        ))
    }

    /// Prints one table for each stretch of measurements with the same metrics.
    fn print_tables(&self) {
        for group in self.measurements.chunk_by(|a, b| a.metric_names() == b.metric_names()) {
            let names = group[0].metric_names();
            let mut table = Table::new();
            table.load_style(UTF8_FULL_CONDENSED);
            table.set_header(["medians"].into_iter().chain(names.iter().copied()));
            for measurement in group {
                let values = measurement.samples.iter().map(|(_, values)| short(median(values)));
                table.add_row([measurement.name.clone()].into_iter().chain(values));
            }
            for column in table.column_iter_mut().skip(1) {
                column.set_cell_alignment(CellAlignment::Right);
            }
            println!("{table}");
        }
    }

    fn print_bars(&self) {
        if self.bars.is_empty() {
            return;
        }
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        table.set_header(["bars", "median", "lowest", "highest", "allowed", "verdict"]);
        for bar in &self.bars {
            let low = bar.samples.iter().copied().fold(f64::INFINITY, f64::min);
            let high = bar.samples.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let values = [bar.median, low, high, bar.allowed].map(short);
            let verdict = if bar.holds { "holds" } else { "MISSED" };
            table.add_row([bar.name.clone()].into_iter().chain(values).chain([verdict.to_owned()]));
        }
        for column in table.column_iter_mut().skip(1).take(4) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        println!("{table}");
    }
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    }
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// Returns the median, 0 of no values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[count / 2],
        count => f64::midpoint(sorted[count / 2 - 1], sorted[count / 2]),
    }
}

fn spread(values: &[f64]) -> f64 {
    let (low, high) = values
        .iter()
        .fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(*value), high.max(*value)));
    let middle = median(values);
    if middle > 0.0 { (high - low) / middle } else { 0.0 }
}

fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 1e6 => format!("{:.2} M", value / 1e6),
        size if size >= 1e4 => format!("{:.1} k", value / 1e3),
        size if size >= 100.0 => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_counts() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(median(&[]).abs() < 1e-9);
    }

    #[test]
    fn spread_is_relative_to_the_median() {
        assert!((spread(&[9.0, 10.0, 12.0]) - 0.3).abs() < 1e-9);
        assert!(spread(&[0.0, 0.0]).abs() < 1e-9);
    }

    #[test]
    fn samples_of_one_metric_are_kept_together() {
        let mut measurement = Measurement::new("exists").with("keys", 64);
        for value in [3.0, 1.0, 2.0] {
            measurement.sample("cpu_ns", value);
        }
        let mut latency = new_histogram();
        latency.record(1000).unwrap();
        measurement.add_latency(&latency);
        let file = serde_json::to_value(measurement.to_file()).unwrap();
        assert_eq!(file["medians"]["cpu_ns"], 2.0);
        assert_eq!(file["samples"]["cpu_ns"].as_array().unwrap().len(), 3);
        assert_eq!(file["parameters"]["keys"], "64");
        assert_eq!(file["latency_ns"][0][1], 1);
    }

    #[test]
    fn the_median_decides_whether_a_bar_holds() {
        let mut run = Run::start("test");
        run.bar("ratio", &[1.0, 9.0, 2.0], 2.0);
        run.bar("ratio", &[1.0, 9.0, 2.1], 2.0);
        assert!(run.bars[0].holds);
        assert!(!run.bars[1].holds);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(short(25_300_000.0), "25.30 M");
        assert_eq!(short(388.4), "388");
        assert_eq!(short(1.256), "1.26");
    }
}
