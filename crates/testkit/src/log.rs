//! What the program writes to its log, to be looked at.

use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

/// The log of this process. All tests of a binary share it: each picks its own lines out.
pub struct Log(Mutex<Vec<(Level, String)>>);

static LOG: LazyLock<&'static Log> = LazyLock::new(|| {
    let log: &'static Log = Box::leak(Box::new(Log(Mutex::default())));
    tracing::subscriber::set_global_default(Tap { log, spans: AtomicU64::new(1) })
        .expect("the only subscriber");
    log
});

impl Log {
    /// From the first call on, everything of level `INFO` and above that Leasehold writes is kept.
    pub fn get() -> &'static Log {
        *LOG
    }

    /// The lines of this level and above that are meant.
    pub fn lines(&self, level: Level, meant: impl Fn(&str) -> bool) -> Vec<String> {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().filter(|(of, line)| *of <= level && meant(line)).map(|(_, line)| line.clone()).collect()
    }
}

struct Tap {
    log: &'static Log,
    spans: AtomicU64,
}

impl Subscriber for Tap {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::INFO && metadata.target().starts_with("leasehold")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(self.spans.fetch_add(1, Ordering::Relaxed))
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        let mut lines = self.log.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push((*event.metadata().level(), line.0));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}
