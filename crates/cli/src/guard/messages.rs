//! What runner and guard tell each other: one message each, over a socket that keeps their borders.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use rustix::process::Pid;

use crate::child::Ended;

/// From the runner to the guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Order {
    /// A variable for the command's environment.
    Set(String, String),
    /// Start the command in this process group, or in one of its own. The session of the store may come with it.
    Spawn { group: Option<Pid> },
    /// When to act if nothing else is heard.
    Watch(Deadlines),
}

/// From the guard to the runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// The command is about to be started; these signals have come already, and it won't hear them.
    Starting { missed: u32 },
    /// The command runs, and this is its id.
    Started(Pid),
    /// The command could not be started, for this reason of the system.
    NotStarted(i32),
    /// The time was over that was told, and the command is being stopped.
    Stopping,
    /// The command itself has ended.
    Ended(Ended),
    /// The command and all that it started are gone. The guard goes as well.
    Gone,
}

/// When the guard acts by itself, on the clock of [`boot_time`](crate::boot_clock::boot_time).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Deadlines {
    /// Tell the command to end.
    pub(crate) term_at: Option<Duration>,
    /// Kill it.
    pub(crate) kill_at: Option<Duration>,
}

impl Deadlines {
    /// The earlier ones of both.
    pub(crate) fn or(self, other: Deadlines) -> Deadlines {
        let earlier = |a: Option<Duration>, b: Option<Duration>| [a, b].into_iter().flatten().min();
        Deadlines {
            term_at: earlier(self.term_at, other.term_at),
            kill_at: earlier(self.kill_at, other.kill_at),
        }
    }

    /// Whether the difference is more than that of two looks at the clock.
    pub(super) fn differ_from(self, other: Deadlines) -> bool {
        const SAME: Duration = Duration::from_millis(5);
        let differ = |a: Option<Duration>, b: Option<Duration>| match (a, b) {
            (Some(a), Some(b)) => a.abs_diff(b) > SAME,
            (a, b) => a != b,
        };
        differ(self.term_at, other.term_at) || differ(self.kill_at, other.kill_at)
    }
}

/// Something that can be sent.
pub(super) trait Message: Sized {
    /// How many bytes it takes at most.
    const LONGEST: usize;
    fn to_bytes(&self) -> Vec<u8>;
    fn from_bytes(bytes: &[u8]) -> Option<Self>;
}

impl Message for Order {
    /// A variable can't be longer than that (MAX_ARG_STRLEN), and a socket takes more at a time.
    const LONGEST: usize = 132 * 1024;

    fn to_bytes(&self) -> Vec<u8> {
        match self {
            Order::Set(key, value) => [b"V", key.as_bytes(), b"\0", value.as_bytes()].concat(),
            Order::Spawn { group } => {
                let group = group.map_or(0, |group| group.as_raw_nonzero().get());
                [&b"S"[..], &group.to_ne_bytes()].concat()
            }
            Order::Watch(deadlines) => {
                let micros =
                    |at: Option<Duration>| at.map_or(u64::MAX, |at| at.as_micros() as u64).to_ne_bytes();
                [&b"W"[..], &micros(deadlines.term_at), &micros(deadlines.kill_at)].concat()
            }
        }
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        match kind {
            b'V' => {
                let (key, value) = std::str::from_utf8(rest).ok()?.split_once('\0')?;
                Some(Order::Set(key.to_owned(), value.to_owned()))
            }
            b'S' => Some(Order::Spawn { group: Pid::from_raw(number(rest)?) }),
            b'W' => {
                let (term, kill) = rest.split_at_checked(8)?;
                let at = |bytes: &[u8]| Some(u64::from_ne_bytes(bytes.try_into().ok()?));
                let time = |micros: u64| (micros != u64::MAX).then(|| Duration::from_micros(micros));
                Some(Order::Watch(Deadlines { term_at: time(at(term)?), kill_at: time(at(kill)?) }))
            }
            _ => None,
        }
    }
}

impl Message for Report {
    const LONGEST: usize = 5;

    fn to_bytes(&self) -> Vec<u8> {
        let (kind, number) = match self {
            Report::Starting { missed } => (b'M', missed.cast_signed()),
            Report::Started(pid) => (b'S', pid.as_raw_nonzero().get()),
            Report::NotStarted(code) => (b'F', *code),
            Report::Ended(Ended::Exited(code)) => (b'E', i32::from(*code)),
            Report::Ended(Ended::Signalled(signal)) => (b'K', *signal),
            Report::Stopping => (b'T', 0),
            Report::Gone => (b'G', 0),
        };
        [&[kind][..], &number.to_ne_bytes()].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let number = number(rest)?;
        match kind {
            b'M' => Some(Report::Starting { missed: number.cast_unsigned() }),
            b'S' => Pid::from_raw(number).map(Report::Started),
            b'F' => Some(Report::NotStarted(number)),
            b'E' => Some(Report::Ended(Ended::Exited(number as u8))),
            b'K' => Some(Report::Ended(Ended::Signalled(number))),
            b'T' => Some(Report::Stopping),
            b'G' => Some(Report::Gone),
            _ => None,
        }
    }
}

fn number(bytes: &[u8]) -> Option<i32> {
    Some(i32::from_ne_bytes(bytes.try_into().ok()?))
}

/// Sends a message, and a file with it if there is one.
pub(super) fn send<M: Message>(to: impl AsFd, message: &M, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let bytes = message.to_bytes();
    let files: Vec<BorrowedFd<'_>> = file.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        with.push(SendAncillaryMessage::ScmRights(&files));
    }
    rustix::io::retry_on_intr(|| sendmsg(&to, &[IoSlice::new(&bytes)], &mut with, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// The next message, with the file that came with it. `None` if there is no other side any more.
pub(super) fn receive<M: Message>(from: impl AsFd) -> io::Result<Option<(M, Option<OwnedFd>)>> {
    let mut bytes = vec![0; M::LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = RecvAncillaryBuffer::new(&mut space);
    let mut reset = false;
    let got = loop {
        match recvmsg(&from, &mut [IoSliceMut::new(&mut bytes)], &mut with, RecvFlags::CMSG_CLOEXEC) {
            Ok(got) => break got.bytes,
            Err(Errno::INTR) => {}
            // The other side went without having read all that we sent. What it said before is still to be read.
            Err(Errno::CONNRESET) if !reset => reset = true,
            Err(Errno::CONNRESET) => return Ok(None),
            Err(e) => return Err(e.into()),
        }
    };
    if got == 0 {
        return Ok(None);
    }
    let file = with.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    match M::from_bytes(&bytes[..got]) {
        Some(message) => Ok(Some((message, file))),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back<M: Message + PartialEq + std::fmt::Debug>(message: M) {
        assert_eq!(M::from_bytes(&message.to_bytes()), Some(message));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn last_words_are_heard_of_one_who_did_not_listen() {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
        let (ours, its) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .expect("a pair");
        send(&its, &Report::Ended(Ended::Exited(3)), None).expect("it is sent");
        send(&its, &Report::Gone, None).expect("it is sent");
        send(&ours, &Order::Watch(Deadlines::default()), None).expect("it is sent");
        drop(its);
        let next = || receive::<Report>(&ours).expect("a message or the end").map(|(report, _)| report);
        assert_eq!(next(), Some(Report::Ended(Ended::Exited(3))));
        assert_eq!(next(), Some(Report::Gone));
        assert_eq!(next(), None);
    }

    #[test]
    fn messages_arrive_as_they_were_sent() {
        there_and_back(Order::Set("KEY".to_owned(), "a=b\nc".to_owned()));
        there_and_back(Order::Spawn { group: None });
        there_and_back(Order::Spawn { group: Pid::from_raw(17) });
        there_and_back(Order::Watch(Deadlines::default()));
        there_and_back(Order::Watch(Deadlines {
            term_at: None,
            kill_at: Some(Duration::from_micros(1_234_567)),
        }));
        there_and_back(Report::Starting { missed: (1 << 31) | 2 });
        there_and_back(Report::NotStarted(2));
        there_and_back(Report::Ended(Ended::Exited(255)));
        there_and_back(Report::Ended(Ended::Signalled(9)));
        there_and_back(Report::Stopping);
        there_and_back(Report::Gone);
        assert_eq!(Order::from_bytes(b"?"), None);
        assert_eq!(Order::from_bytes(b"W1234"), None);
    }
}
