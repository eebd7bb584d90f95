//! What happens to the bytes of one connection.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::frames::{Frame, Frames, Head, Side, Sort};
use super::{Fault, Mode, Shared};

/// How many frames may be under way in one direction; more stay in the sockets.
const UNDER_WAY: usize = 1024;

/// Why both sides of a connection are reset.
struct Reset;

impl From<std::io::Error> for Reset {
    fn from(_: std::io::Error) -> Self {
        Reset
    }
}

/// A frame, and when it goes on if not at once.
type Parcel = (Option<Instant>, Frame);

/// The way from one side to the other: a reader fills it, a writer empties it. So a delay holds up every frame alike, and
/// not those behind it for longer.
fn way() -> (mpsc::Sender<Parcel>, mpsc::Receiver<Parcel>) {
    mpsc::channel(UNDER_WAY)
}

/// Which answers of one connection are lost, and everything with them.
#[derive(Default)]
struct Ledger {
    /// Requests that went to the server.
    asked: AtomicU64,
    /// The request whose answer is lost, if any: which one it was, from 1 on, and its head.
    lost: OnceLock<(u64, Option<Head>)>,
}

impl Ledger {
    /// Whether this answer, the so-manyth, is the lost one. Where answers have numbers they needn't come in order: an
    /// answer to a ping may overtake.
    fn loses(&self, answer: &Frame, at: u64) -> bool {
        let Some((lost, asked)) = self.lost.get() else { return false };
        match (answer.sort, asked, answer.head) {
            (Sort::Raw, _, _) => true,
            (Sort::Push, _, _) => false,
            (Sort::Value, Some(asked), Some(answered)) => asked.number == answered.number,
            (Sort::Value, _, _) => at >= *lost,
        }
    }
}

/// Serves one connection until it ends or is cut.
pub(super) async fn serve(mut client: TcpStream, shared: &Shared, mut cut: watch::Receiver<()>) {
    let mut server = None;
    let relayed = async {
        let _ = client.set_nodelay(true);
        let mut mode = shared.mode.subscribe();
        // To a client it looks as if the server had taken the connection and said nothing.
        let _ = mode.wait_for(|mode| *mode != Mode::Hang).await;
        let server = server.insert(TcpStream::connect(shared.target()).await?);
        server.set_nodelay(true)?;
        relay(&mut client, server, shared).await
    };
    let ended = tokio::select! {
        ended = relayed => ended,
        _ = cut.changed() => Err(Reset),
    };
    if ended.is_err() {
        [Some(client), server].into_iter().flatten().for_each(reset);
    }
    // Whoever cuts waits until this is dropped.
    drop(cut);
}

/// Closes with a RST, as a machine that knows nothing of the connection would.
fn reset(stream: TcpStream) {
    let _ = set_socket_linger(&stream, Some(Duration::ZERO));
}

async fn relay(client: &mut TcpStream, server: &mut TcpStream, shared: &Shared) -> Result<(), Reset> {
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let (requests, request) = way();
    let (answers, answer) = way();
    let ledger = Ledger::default();
    let traffic = &shared.traffic;
    tokio::try_join!(
        take(Side::Client, from_client, requests, shared, &traffic.reads_from_client),
        ask(request, to_server, shared, &ledger),
        take(Side::Server, from_server, answers, shared, &traffic.reads_from_server),
        give(answer, to_client, shared, &ledger),
    )?;
    Ok(())
}

/// Reads one side to its end.
async fn take(
    side: Side,
    mut from: ReadHalf<'_>,
    way: mpsc::Sender<Parcel>,
    shared: &Shared,
    reads: &AtomicU64,
) -> Result<(), Reset> {
    let mut frames = Frames::new(shared.language, side);
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        reads.fetch_add(1, Relaxed);
        let due = match *shared.mode.borrow() {
            Mode::Delay(delay) => Some(Instant::now() + delay),
            _ => None,
        };
        frames.feed(&buffer[..length]);
        while let Some(frame) = frames.next() {
            way.send((due, frame)).await.map_err(|_| Reset)?;
        }
    }
}

/// Brings requests to the server.
async fn ask(
    mut way: mpsc::Receiver<Parcel>,
    mut server: WriteHalf<'_>,
    shared: &Shared,
    ledger: &Ledger,
) -> Result<(), Reset> {
    let mut mode = shared.mode.subscribe();
    while let Some((due, frame)) = way.recv().await {
        hold(due).await;
        let _ = mode.wait_for(|mode| *mode != Mode::Hang).await;
        let is_command = frame.sort != Sort::Raw;
        let number = ledger.asked.load(Relaxed) + 1;
        match shared.fault_for(&frame) {
            Some(Fault::CutBefore) => return Err(Reset),
            Some(Fault::LoseAnswer) => {
                // The first one loses all after it, as the connection goes.
                let _ = ledger.lost.set((number, frame.head));
            }
            None => {}
        }
        if is_command {
            ledger.asked.store(number, Relaxed);
            shared.count(&frame);
        }
        shared.traffic.bytes_to_server.fetch_add(frame.bytes.len() as u64, Relaxed);
        server.write_all(&frame.bytes).await?;
    }
    Ok(server.shutdown().await?)
}

/// Brings answers to the client.
async fn give(
    mut way: mpsc::Receiver<Parcel>,
    mut client: WriteHalf<'_>,
    shared: &Shared,
    ledger: &Ledger,
) -> Result<(), Reset> {
    let mut mode = shared.mode.subscribe();
    let mut answered = 0;
    while let Some((due, frame)) = way.recv().await {
        hold(due).await;
        let mode = *mode.wait_for(|mode| *mode != Mode::Hang).await.map_err(|_| Reset)?;
        let next = answered + 1;
        if ledger.loses(&frame, next) {
            return Err(Reset);
        }
        if frame.sort == Sort::Value {
            answered = next;
        }
        if mode == Mode::Swallow {
            continue;
        }
        // Before it is written: a client that has its answer finds it counted.
        shared.traffic.bytes_to_client.fetch_add(frame.bytes.len() as u64, Relaxed);
        shared.traffic.answers.fetch_add(u64::from(frame.sort == Sort::Value), Relaxed);
        match mode {
            Mode::Drip { bytes, every } => drip(&frame.bytes, bytes, every, &mut client, shared).await?,
            _ => client.write_all(&frame.bytes).await?,
        }
    }
    Ok(client.shutdown().await?)
}

/// Not a timer if it is due: the shortest takes a millisecond.
async fn hold(due: Option<Instant>) {
    if let Some(due) = due {
        sleep_until(due).await;
    }
}

async fn drip(
    answer: &[u8],
    bytes: usize,
    every: Duration,
    client: &mut WriteHalf<'_>,
    shared: &Shared,
) -> Result<(), Reset> {
    let mut mode = shared.mode.subscribe();
    for piece in answer.chunks(bytes.max(1)) {
        let now = *mode.wait_for(|mode| *mode != Mode::Hang).await.map_err(|_| Reset)?;
        client.write_all(piece).await?;
        if matches!(now, Mode::Drip { .. }) {
            sleep(every).await;
        }
    }
    Ok(())
}
