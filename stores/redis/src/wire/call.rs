//! One request: a script with its key and arguments, ready to be sent.

use std::sync::Arc;

use redis::{Arg, Cmd};

use super::slot::Slot;

/// A Lua script, known to servers by its digest. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Script(Arc<Text>);

#[derive(Debug)]
struct Text {
    source: String,
    digest: String,
}

impl Script {
    /// A script with this text.
    pub fn new(source: impl Into<String>) -> Self {
        let source = source.into();
        let digest = sha1_smol::Sha1::from(&source).digest().to_string();
        Script(Arc::new(Text { source, digest }))
    }

    /// What is sent when the server does not know the digest.
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// What servers know it by.
    pub fn digest(&self) -> &str {
        &self.0.digest
    }
}

/// A request to the node that owns a slot.
#[derive(Debug, Clone)]
pub struct Call {
    /// Where it goes.
    pub slot: Slot,
    /// `EVALSHA digest 1 key arguments…`, or any other command.
    pub cmd: Cmd,
    /// The script that the digest stands for.
    script: Option<Script>,
}

impl Call {
    /// A call of a script on these keys (all of one slot, or of a server without slots).
    pub fn script(script: &Script, slot: Slot, keys: &[&str]) -> Self {
        // Room for the usual arguments too, about as long as the keys.
        let bytes: usize = keys.iter().map(|key| key.len() + 64).sum();
        let mut cmd = Cmd::with_capacity(8 + 2 * keys.len(), 256 + bytes);
        cmd.arg("EVALSHA").arg(script.digest()).arg(keys.len());
        for key in keys {
            cmd.arg(key);
        }
        Call { slot, cmd, script: Some(script.clone()) }
    }

    /// Any other command.
    pub fn command(slot: Slot, cmd: Cmd) -> Self {
        Call { slot, cmd, script: None }
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl redis::ToRedisArgs) -> Self {
        self.cmd.arg(arg);
        self
    }

    /// The commands of these calls, in one pipeline for a server that knows none of their scripts: the first call of each
    /// script has its text, which the others then find.
    pub(crate) fn in_full_once<'a>(calls: impl Iterator<Item = &'a Call>) -> Vec<Cmd> {
        let mut sent: Vec<&str> = Vec::new();
        let short_or_full = |call: &'a Call| match &call.script {
            Some(script) if !sent.contains(&script.digest()) => {
                sent.push(script.digest());
                call.in_full().unwrap_or_else(|| call.cmd.clone())
            }
            _ => call.cmd.clone(),
        };
        calls.map(short_or_full).collect()
    }

    /// The same with the text of the script instead of its digest: what a server does not know, it then knows.
    pub(crate) fn in_full(&self) -> Option<Cmd> {
        let script = self.script.as_ref()?;
        let mut cmd = Cmd::with_capacity(16, 512 + script.source().len());
        cmd.arg("EVAL").arg(script.source());
        for arg in self.cmd.args_iter().skip(2) {
            if let Arg::Simple(bytes) = arg {
                cmd.arg(bytes);
            }
        }
        Some(cmd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_in_full_differs_only_in_the_script() {
        let script = Script::new("return ARGV[1]");
        let call = Call::script(&script, Slot(1), &["k1", "k2"]).arg("a b").arg(7).arg(&b"\xff\0"[..]);
        let words = |cmd: &Cmd| -> Vec<Vec<u8>> {
            cmd.args_iter()
                .map(|arg| match arg {
                    Arg::Simple(bytes) => bytes.to_vec(),
                    _ => panic!(),
                })
                .collect()
        };
        let (short, full) = (words(&call.cmd), words(&call.in_full().unwrap()));
        assert_eq!(short[2..], full[2..]);
        assert_eq!(full[..2], [b"EVAL".to_vec(), b"return ARGV[1]".to_vec()]);
        assert!(Call::command(Slot(1), redis::cmd("PING")).in_full().is_none());
    }
}
