//! What is logged in this process.

use std::fmt::Write as _;
use std::sync::{Mutex, OnceLock};

/// Every event and span of this process at any level, ours and those of the crates that we use.
pub(crate) struct Log(Mutex<String>);

static LOG: OnceLock<Log> = OnceLock::new();

impl Log {
    pub(crate) fn of_this_process() -> &'static Log {
        LOG.get_or_init(|| {
            tracing::subscriber::set_global_default(ToLog).expect("no other subscriber");
            log::set_logger(&ToLog).expect("no other logger");
            log::set_max_level(log::LevelFilter::Trace);
            Log(Mutex::default())
        })
    }

    pub(crate) fn text(&self) -> String {
        self.0.lock().expect("no panic while it was held").clone()
    }
}

struct ToLog;

impl ToLog {
    fn add(line: &str) {
        if let Some(log) = LOG.get() {
            log.0.lock().expect("no panic while it was held").extend([line, "\n"]);
        }
    }
}

impl log::Log for ToLog {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        ToLog::add(&record.args().to_string());
    }

    fn flush(&self) {}
}

struct Fields(String);

impl tracing::field::Visit for Fields {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, "{field}={value:?} ");
    }
}

impl tracing::Subscriber for ToLog {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        let mut fields = Fields(format!("{} ", span.metadata().name()));
        span.record(&mut fields);
        ToLog::add(&fields.0);
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, values: &tracing::span::Record<'_>) {
        let mut fields = Fields(String::new());
        values.record(&mut fields);
        ToLog::add(&fields.0);
    }

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        ToLog::add(&fields.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}
