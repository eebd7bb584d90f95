//! One private server process: started, watched until it answers, killed, stopped, paused, restarted.

use std::ffi::OsString;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tempfile::TempDir;

use super::network::{Link, RemoteHost};
use super::poll::{try_until, until};
use super::port::Port;
use super::{folder, spawn};

/// How long a server may take until it answers, or until it ends when it is asked to.
const START_LIMIT: Duration = Duration::from_secs(30);

/// How many lines of its log a server that fails is shown with.
const TAIL: usize = 60;

/// What to start.
pub struct Program {
    /// How it is called.
    pub name: &'static str,
    /// The Debian package that it comes in.
    pub package: &'static str,
    /// Its arguments. `{folder}` stands for the folder of [`files`](Self::files), `{port}` for the port.
    pub args: Vec<String>,
    /// Files that are written before the first start and before an empty one: name and text, with the same marks.
    pub files: Vec<(&'static str, String)>,
    /// Says why the server is not ready yet.
    pub ready: Box<dyn Fn(SocketAddr) -> Result<(), String> + Send + Sync>,
}

/// A server of this test alone, on a loopback port of its own and in a folder of its own.
///
/// All methods block until what they say is so; they panic if it doesn't come true. Dropping it kills the server and removes
/// the folder. If the test process dies, even by SIGKILL, the server dies too.
pub struct Process {
    program: Program,
    path: PathBuf,
    port: Port,
    /// Where it runs, if not here.
    host: Option<Arc<RemoteHost>>,
    folder: TempDir,
    child: Mutex<Option<Child>>,
    paused: AtomicBool,
}

impl Process {
    /// Starts a server and waits until it is ready.
    pub fn start(program: Program) -> Process {
        Self::start_on(None, program)
    }

    /// The same on a remote host, if one is given. Its folder is here.
    pub(crate) fn start_on(host: Option<Arc<RemoteHost>>, program: Program) -> Process {
        let path = spawn::find(program.name, program.package);
        let folder = folder::fresh(program.name);
        let process = Process {
            program,
            path,
            port: Port::reserve(),
            host,
            folder,
            child: Mutex::new(None),
            paused: AtomicBool::new(false),
        };
        process.empty();
        process.launch();
        process
    }

    /// The port it answers on. It stays the same, and stays ours while the server is down.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The address it answers on.
    pub fn address(&self) -> SocketAddr {
        match self.host {
            // A port that is free here: there, nobody else has any.
            Some(_) => SocketAddr::new(Link::Clients.remote(), self.port()),
            None => self.port.address(),
        }
    }

    /// The process id of the running server.
    pub fn pid(&self) -> u32 {
        self.child().as_ref().map(Child::id).expect("a running server")
    }

    /// Whether it was started and neither killed nor stopped since. A paused server runs too.
    pub fn is_running(&self) -> bool {
        self.child().is_some()
    }

    /// Whether it runs and is not paused.
    pub fn is_up(&self) -> bool {
        self.is_running() && !self.paused.load(Relaxed)
    }

    /// The folder with its log and its configuration. The data is in [`data`](Self::data).
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The working directory of the server, where it keeps its data.
    pub fn data(&self) -> PathBuf {
        self.folder().join("data")
    }

    /// The last lines of its log.
    pub fn log_tail(&self) -> String {
        let log = fs::read(self.folder().join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(TAIL)..].join("\n")
    }

    /// Kills it (SIGKILL), paused or not. Nothing happens if it doesn't run.
    pub fn kill(&self) {
        if let Some(mut child) = self.child().take() {
            let _ = child.kill();
            child.wait().expect("the end of a killed server");
        }
    }

    /// Asks it to end (SIGTERM), and waits until it has. Nothing happens if it doesn't run.
    pub fn stop(&self) {
        let mut slot = self.child();
        let Some(child) = slot.as_mut() else { return };
        signal(child, Signal::TERM);
        // A paused server sees the first signal only after this one.
        signal(child, Signal::CONT);
        let ended = try_until(START_LIMIT, || child.try_wait().ok().flatten().ok_or(()));
        assert!(ended.is_ok(), "{} doesn't end; its log:\n{}", self.program.name, self.log_tail());
        *slot = None;
    }

    /// Stops its clock (SIGSTOP): its connections stay open, and nothing is answered.
    pub fn pause(&self) {
        let slot = self.child();
        let child = slot.as_ref().expect("a running server");
        signal(child, Signal::STOP);
        let stopped = || match waitid(WaitId::Pid(pid(child)), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG)
        {
            Ok(Some(_)) => Ok(()),
            other => Err(format!("{other:?}")),
        };
        until("the server is paused", stopped);
        self.paused.store(true, Relaxed);
    }

    /// Lets a paused server go on (SIGCONT).
    pub fn resume(&self) {
        signal(self.child().as_ref().expect("a running server"), Signal::CONT);
        self.paused.store(false, Relaxed);
    }

    /// Starts it again, on the same port and with the data that it left on disk; kills it first if it runs.
    pub fn restart(&self) {
        self.kill();
        self.launch();
    }

    /// Starts it again on the same port, as if for the first time: without data, with its first configuration.
    pub fn restart_empty(&self) {
        self.kill();
        self.empty();
        self.launch();
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the marks of [`Program::args`].
    fn filled(&self, text: &str) -> String {
        let folder = self.folder().to_str().expect("a folder with a readable name");
        text.replace("{folder}", folder).replace("{port}", &self.port().to_string())
    }

    fn empty(&self) {
        let _ = fs::remove_dir_all(self.data());
        fs::create_dir(self.data()).expect("a folder for data");
        for (name, text) in &self.program.files {
            fs::write(self.folder().join(name), self.filled(text)).expect("a file for the server");
        }
    }

    fn launch(&self) {
        let mut path = self.path.clone();
        let mut args: Vec<OsString> = self.program.args.iter().map(|arg| self.filled(arg).into()).collect();
        if let Some(host) = &self.host {
            let (enter, before) = host.enter();
            let path = std::mem::replace(&mut path, enter);
            args.splice(..0, before.map(OsString::from).into_iter().chain([path.into()]));
        }
        let log = File::options().create(true).append(true).open(self.folder().join("log")).expect("a log");
        let errors = log.try_clone().expect("the log once more");
        let started = spawn::spawn(&path, &args, |command| {
            command.current_dir(self.data()).stdin(Stdio::null()).stdout(log).stderr(errors);
        });
        let child = started.unwrap_or_else(|e| panic!("{} can't be started: {e}", self.program.name));
        *self.child() = Some(child);
        self.paused.store(false, Relaxed);
        if let Err(why) = self.wait_until_ready() {
            self.kill();
            panic!("{} doesn't start: {why}; its log:\n{}", self.program.name, self.log_tail());
        }
    }

    fn wait_until_ready(&self) -> Result<(), String> {
        // An end is final; all else may change.
        let look = || match self.child().as_mut().expect("a child").try_wait() {
            Ok(Some(status)) => Ok(Err(format!("it ended with {status}"))),
            Ok(None) => (self.program.ready)(self.address()).map(Ok),
            Err(e) => Ok(Err(e.to_string())),
        };
        try_until(START_LIMIT, look).unwrap_or_else(Err)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// A server that has just died by itself can't be reached; whoever looks next finds out.
fn signal(child: &Child, signal: Signal) {
    let _ = kill_process(pid(child), signal);
}
