//! Rounds, medians, the printed table and the targets.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// Prints what was measured as it comes, and keeps what the targets say.
pub(crate) struct Report {
    quick: bool,
    verdicts: Vec<(String, bool)>,
}

/// What a figure has to reach.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    /// No more than this.
    AtMost(f64),
    /// Less than this.
    Below(f64),
    /// No less than this.
    AtLeast(f64),
}

impl Target {
    fn met_by(self, figure: f64) -> bool {
        match self {
            Target::AtMost(most) => figure <= most,
            Target::Below(end) => figure < end,
            Target::AtLeast(least) => figure >= least,
        }
    }

    fn shown(self, unit: &str) -> String {
        let (word, number) = match self {
            Target::AtMost(n) => ("≤", n),
            Target::Below(n) => ("<", n),
            Target::AtLeast(n) => ("≥", n),
        };
        format!("{word} {number}{unit}")
    }
}

impl Report {
    pub(crate) fn new(quick: bool) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let build = if cfg!(debug_assertions) { "debug build: the figures mean nothing" } else { "release" };
        println!("leasehold-bench, {build}, {cores} cores{}", if quick { ", quick" } else { "" });
        Report { quick, verdicts: Vec::new() }
    }

    /// Whether a look is enough.
    pub(crate) fn quick(&self) -> bool {
        self.quick
    }

    /// How many rounds to run.
    pub(crate) fn rounds(&self) -> usize {
        if self.quick { 3 } else { 9 }
    }

    /// How much work a round does: all of it, or a tenth.
    pub(crate) fn work(&self, full: usize) -> usize {
        if self.quick { (full / 10).max(1) } else { full }
    }

    /// A headline.
    pub(crate) fn section(&self, title: &str) {
        println!("\n{title}");
    }

    /// A line of the table.
    pub(crate) fn line(&self, what: &str, figure: impl Display, note: impl Display) {
        println!("  {what:<46} {figure:>12}   {note}");
    }

    /// A line with a target.
    pub(crate) fn target(&mut self, what: &str, figure: f64, unit: &str, target: Target, note: impl Display) {
        let met = target.met_by(figure);
        let verdict = if met { "PASS" } else { "below target" };
        let note = format!("{verdict} (target {}) {note}", target.shown(unit));
        self.line(what, format!("{figure:.1}{unit}"), note.trim_end());
        self.verdicts.push((what.to_owned(), met));
    }

    /// Says how many targets were met, and whether any was missed.
    pub(crate) fn finish(self) -> bool {
        let missed: Vec<&str> =
            self.verdicts.iter().filter(|(_, met)| !met).map(|(what, _)| what.as_str()).collect();
        println!("\n{} of {} targets met", self.verdicts.len() - missed.len(), self.verdicts.len());
        for what in &missed {
            println!("below target: {what}");
        }
        !missed.is_empty()
    }
}

/// The times of two ways to do the same thing, from rounds that alternate.
pub(crate) struct Pair {
    floor: Vec<f64>,
    ours: Vec<f64>,
}

impl Pair {
    /// Runs both in turn; each returns the nanoseconds of one operation. The first round warms up and is not kept.
    pub(crate) fn alternate<E>(
        rounds: usize,
        mut floor: impl FnMut() -> Result<f64, E>,
        mut ours: impl FnMut() -> Result<f64, E>,
    ) -> Result<Self, E> {
        let mut pair = Pair { floor: Vec::new(), ours: Vec::new() };
        for round in 0..=rounds {
            let (one, other) = (floor()?, ours()?);
            if round > 0 {
                pair.floor.push(one);
                pair.ours.push(other);
            }
        }
        Ok(pair)
    }

    /// The median time of the floor.
    pub(crate) fn floor(&self) -> f64 {
        median(self.floor.iter().copied())
    }

    /// The median time of ours.
    pub(crate) fn ours(&self) -> f64 {
        median(self.ours.iter().copied())
    }

    /// How many times as long ours takes: the median over the rounds, each compared with its neighbour.
    pub(crate) fn slower(&self) -> Ratio {
        Ratio::of(self.ours.iter().zip(&self.floor).map(|(ours, floor)| ours / floor))
    }
}

/// A ratio over several rounds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ratio {
    /// The median.
    pub(crate) median: f64,
    least: f64,
    most: f64,
}

impl Ratio {
    fn of(ratios: impl Iterator<Item = f64> + Clone) -> Self {
        let least = ratios.clone().fold(f64::INFINITY, f64::min);
        let most = ratios.clone().fold(0.0, f64::max);
        Ratio { median: median(ratios), least, most }
    }

    /// The other way round: how many times as fast.
    pub(crate) fn inverse(self) -> Self {
        Ratio { median: 1.0 / self.median, least: 1.0 / self.most, most: 1.0 / self.least }
    }

    /// Between what the rounds were.
    pub(crate) fn spread(self) -> String {
        format!("rounds {:.1} to {:.1}", self.least, self.most)
    }
}

/// The middle one.
pub(crate) fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => figures[middle],
        _ => f64::midpoint(figures[middle - 1], figures[middle]),
    }
}

/// How long `work` took per operation, in nanoseconds.
pub(crate) fn per_operation<E>(operations: usize, work: impl FnOnce() -> Result<(), E>) -> Result<f64, E> {
    let began = Instant::now();
    work()?;
    Ok(began.elapsed().as_nanos() as f64 / operations as f64)
}

/// A time as people read it.
pub(crate) fn time(nanos: f64) -> String {
    match nanos {
        n if n < 1_000.0 => format!("{n:.0} ns"),
        n if n < 1_000_000.0 => format!("{:.2} µs", n / 1_000.0),
        n => format!("{:.2} ms", n / 1_000_000.0),
    }
}

/// A duration in nanoseconds.
pub(crate) fn nanos(d: Duration) -> f64 {
    d.as_nanos() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
    }

    #[test]
    fn each_round_is_compared_with_its_neighbour() {
        let (mut floor, mut ours) = ([9.0, 1.0, 2.0, 4.0].into_iter(), [99.0, 3.0, 4.0, 20.0].into_iter());
        let pair = Pair::alternate(3, || floor.next().ok_or(()), || ours.next().ok_or(())).unwrap();
        let slower = pair.slower();
        assert_eq!((slower.median, slower.least, slower.most), (3.0, 2.0, 5.0));
        assert_eq!(slower.inverse().most, 0.5);
    }

    #[test]
    fn targets_include_or_exclude_their_bound() {
        assert!(Target::AtMost(3.0).met_by(3.0) && !Target::AtMost(3.0).met_by(3.1));
        assert!(!Target::Below(3.0).met_by(3.0) && Target::AtLeast(50.0).met_by(50.0));
    }
}
