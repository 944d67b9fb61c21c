//! A simulated disk: in memory, deterministic, and able to fail on cue.
//!
//! A test writes its script against the count of calls, which is the only
//! clock there is: the disk loses power at the n-th call ([`SimDisk::crash_at`])
//! or answers the n-th call with a fault ([`SimDisk::fail_at`]). Run once
//! without a script to learn the count, then once for each call.
//!
//! What survives a crash is decided when the disk is opened again, by a
//! [`Crash`] model. The models take their license from what file systems do,
//! and where those differ, from the worst of them: syncing a file does not make
//! its name durable, and of a rename between two directories each half is
//! durable with its own directory.

mod tree;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::tree::{Inode, Tree};
use super::{Disk, Entry, Lock};

/// What survives a loss of power.
///
/// Bytes and names given up by a failed sync survive under none of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Only what was synced: the bytes of files, and the names in directories,
    /// as of their last sync.
    Lost,
    /// Everything done so far, as when a process dies and the machine does not.
    Kept,
    /// What was synced; of each file that was not, a prefix of random length;
    /// and each change of a name that was not, or not, by the toss of a coin.
    /// The call that met the crash counts, if it was a write, by half.
    Torn,
    /// What was synced, and every rename whether synced or not; files that were
    /// not synced are empty. This is what delayed allocation does to those who
    /// rename a file before syncing it.
    RenameFirst,
}

impl Crash {
    /// Every model.
    pub const ALL: [Self; 4] = [Self::Lost, Self::Kept, Self::Torn, Self::RenameFirst];
}

/// A way for one call to go wrong while the disk stays up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No space is left; fits the calls that need some: `create_dir`,
    /// `write_new`, `sync_file` and `rename`.
    Enospc,
    /// The device failed; fits every call.
    Eio,
    /// Permission denied; fits every call.
    Eacces,
    /// Too many open files; fits the calls that open one: `read`, `list`,
    /// `write_new`, `sync_file`, `sync_dir` and `lock`.
    Emfile,
    /// Half of the bytes are written, then the call fails; fits `write_new`.
    ShortWrite,
    /// The sync fails, and what it was to make durable never will be, though
    /// the next sync succeeds; fits `sync_file` and `sync_dir`. `Enospc` and
    /// `Eio` do the same to a sync.
    FailedSync,
    /// The rename fails and changes nothing; fits `rename`.
    FailedRename,
    /// Half of the content is returned as if it were all; fits `read`.
    PartialRead,
    /// The names are returned as they were before the last change of the
    /// directory; fits `list`.
    StaleListing,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Self; 9] = [
        Self::Enospc,
        Self::Eio,
        Self::Eacces,
        Self::Emfile,
        Self::ShortWrite,
        Self::FailedSync,
        Self::FailedRename,
        Self::PartialRead,
        Self::StaleListing,
    ];

    fn fits(self, call: Call) -> bool {
        use Call::{CreateDir, List, Lock, Read, Rename, SyncDir, SyncFile, WriteNew};
        match self {
            Self::Eio | Self::Eacces => true,
            Self::Enospc => matches!(call, CreateDir | WriteNew | SyncFile | Rename),
            Self::Emfile => matches!(call, Read | List | WriteNew | SyncFile | SyncDir | Lock),
            Self::ShortWrite => call == WriteNew,
            Self::FailedSync => matches!(call, SyncFile | SyncDir),
            Self::FailedRename => call == Rename,
            Self::PartialRead => call == Read,
            Self::StaleListing => call == List,
        }
    }

    /// Whether a sync that meets this fault gives up what it was to write: a
    /// sync that could not even open the file does not.
    fn drops_unsynced(self) -> bool {
        !matches!(self, Self::Eacces | Self::Emfile)
    }

    fn error(self) -> io::Error {
        match self {
            Self::Enospc => os_error(28, ErrorKind::StorageFull),
            Self::Eacces => os_error(13, ErrorKind::PermissionDenied),
            Self::Emfile => os_error(24, ErrorKind::Other),
            Self::ShortWrite => io::Error::new(ErrorKind::WriteZero, "the write fell short"),
            _ => os_error(5, ErrorKind::Other),
        }
    }
}

/// The error a Unix kernel numbers `code`; elsewhere the nearest kind.
fn os_error(code: i32, kind: ErrorKind) -> io::Error {
    if cfg!(unix) {
        io::Error::from_raw_os_error(code)
    } else {
        kind.into()
    }
}

/// A handle on a simulated disk. Clones are handles on the same disk, so a test
/// keeps one while the engine has another.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    tree: Tree,
    script: Script,
    /// Who holds the lock on a file, by the number of the lock.
    locks: BTreeMap<Inode, u64>,
    last_lock: u64,
    /// The write that met the crash: its path, and the half of its bytes.
    interrupted: Option<(String, Vec<u8>)>,
}

impl SimDisk {
    /// An empty disk. The seed decides what [`Crash::Torn`] keeps.
    pub fn new(seed: u64) -> Self {
        let state = State {
            tree: Tree::new(seed),
            script: Script::default(),
            locks: BTreeMap::new(),
            last_lock: 0,
            interrupted: None,
        };
        let state = Arc::new(Mutex::new(state));
        Self { state }
    }

    /// How many calls the disk has been asked for, failed ones included, since
    /// it was new. A crash does not set it back: to aim at the k-th call from
    /// here, use `calls() + k`.
    pub fn calls(&self) -> u64 {
        self.state().script.calls
    }

    /// Loses power at the n-th call, counted from zero: it does not happen, and
    /// it and every later one fail with "the disk has crashed" until
    /// [`reopen`](Self::reopen). Nothing comes of it if that call is past.
    pub fn crash_at(&self, n: u64) {
        self.state().script.crash_at = Some(n);
    }

    /// Whether power is lost now.
    pub fn crashed(&self) -> bool {
        self.state().script.crashed
    }

    /// Makes the n-th call, counted from zero, go wrong; with `permanent`, also
    /// every later call that the fault fits. If the n-th call is one it does not
    /// fit, that call fails with [`Fault::Eio`]. Of several faults on one call
    /// the first given wins.
    pub fn fail_at(&self, n: u64, fault: Fault, permanent: bool) {
        self.state().script.faults.push(Planned {
            n,
            fault,
            permanent,
        });
    }

    /// Brings the disk back after a crash, or crashes it here and now and brings
    /// it back. The disk is healthy again: locks, planned crashes and planned
    /// faults are gone.
    ///
    /// Handles from before work again too, so whatever used them must be at
    /// rest: a thread still running would write to the disk after its death.
    pub fn reopen(&self, model: Crash) {
        let mut state = self.state();
        let interrupted = state.interrupted.take();
        if let (Crash::Torn, Some((path, half))) = (model, interrupted) {
            // A write that could not have begun leaves nothing.
            state.tree.write(&path, &half).ok();
        }
        state.tree.crash(model);
        state.locks.clear();
        state.script.heal();
    }

    /// Forgets what was planned to go wrong, and nothing else: the disk is well again, and whoever uses it goes on.
    /// Power that is lost stays lost.
    pub fn heal(&self) {
        let mut state = self.state();
        state.script.faults.clear();
        state.script.crash_at = None;
    }

    /// Another disk that is as this one is now: what it holds, what is planned, how many calls it has had, and
    /// what chance will do. Nobody holds a lock on it.
    pub fn fork(&self) -> Self {
        let state = self.state();
        let copy = State {
            tree: state.tree.clone(),
            script: state.script.clone(),
            locks: BTreeMap::new(),
            last_lock: 0,
            interrupted: state.interrupted.clone(),
        };
        drop(state);
        let state = Arc::new(Mutex::new(copy));
        Self { state }
    }

    /// Changes the bytes of a file as bit rot does: unasked, uncounted, and
    /// durably if they were durable.
    ///
    /// # Errors
    /// As [`Disk::read`], but never a planned one.
    pub fn corrupt(&self, path: &str, rot: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let mut bytes = self.state().tree.read(path)?;
        rot(&mut bytes);
        self.state().tree.replace(path, bytes)
    }

    /// The path of every file a running program would see, sorted; uncounted,
    /// and answered even after a crash.
    pub fn files(&self) -> Vec<String> {
        self.state().tree.files()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SimDisk {
    /// Says nothing of the content, which may be large and may be locked.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDisk").finish_non_exhaustive()
    }
}

impl Disk for SimDisk {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let mut state = self.state();
        match state.script.admit(Call::Read) {
            Err(Halt::Fault(Fault::PartialRead)) => state.tree.read(path).map(|mut bytes| {
                bytes.truncate(bytes.len() / 2);
                bytes
            }),
            admitted => admitted
                .map_err(Halt::error)
                .and_then(|()| state.tree.read(path)),
        }
    }

    fn list(&self, dir: &str) -> io::Result<Vec<Entry>> {
        let mut state = self.state();
        match state.script.admit(Call::List) {
            Err(Halt::Fault(Fault::StaleListing)) => state.tree.list_stale(dir),
            admitted => admitted
                .map_err(Halt::error)
                .and_then(|()| state.tree.list(dir)),
        }
    }

    fn create_dir(&self, dir: &str) -> io::Result<()> {
        self.plain(Call::CreateDir, |tree| tree.create_dir(dir))
    }

    fn write_new(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        let half = bytes.get(..bytes.len() / 2).unwrap_or_default();
        let halt = match state.script.admit(Call::WriteNew) {
            Ok(()) => return state.tree.write(path, bytes),
            Err(halt) => halt,
        };
        match halt {
            Halt::PowerLost => state.interrupted = Some((path.to_owned(), half.to_vec())),
            Halt::Fault(Fault::ShortWrite) => state.tree.write(path, half)?,
            Halt::Dead | Halt::Fault(_) => {}
        }
        Err(halt.error())
    }

    fn sync_file(&self, path: &str) -> io::Result<()> {
        let sync = |tree: &mut Tree| tree.sync_file(path);
        self.sync(Call::SyncFile, sync, |tree| tree.drop_data(path))
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        let sync = |tree: &mut Tree| tree.sync_dir(dir);
        self.sync(Call::SyncDir, sync, |tree| tree.drop_names(dir))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.plain(Call::Rename, |tree| tree.rename(from, to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.plain(Call::Remove, |tree| tree.remove(path))
    }

    fn remove_dir(&self, dir: &str) -> io::Result<()> {
        self.plain(Call::RemoveDir, |tree| tree.remove_dir(dir))
    }

    fn lock(&self, path: &str) -> io::Result<Lock> {
        let mut state = self.state();
        state.script.admit(Call::Lock).map_err(Halt::error)?;
        let inode = state.tree.open_or_create(path)?;
        if state.locks.contains_key(&inode) {
            return Err(ErrorKind::WouldBlock.into());
        }
        state.last_lock += 1;
        let number = state.last_lock;
        state.locks.insert(inode, number);
        let disk = self.clone();
        Ok(Box::new(Held {
            disk,
            inode,
            number,
        }))
    }
}

impl SimDisk {
    /// A call to which every fault is just an error.
    fn plain<T>(&self, call: Call, run: impl FnOnce(&mut Tree) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.state();
        state.script.admit(call).map_err(Halt::error)?;
        run(&mut state.tree)
    }

    /// A sync, which loses something when it fails.
    fn sync(
        &self,
        call: Call,
        run: impl FnOnce(&mut Tree) -> io::Result<()>,
        give_up: impl FnOnce(&mut Tree) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut state = self.state();
        match state.script.admit(call) {
            Ok(()) => run(&mut state.tree),
            Err(halt) => {
                if matches!(halt, Halt::Fault(fault) if fault.drops_unsynced()) {
                    give_up(&mut state.tree)?;
                }
                Err(halt.error())
            }
        }
    }
}

/// A lock held. It is numbered so that one from before a crash cannot release
/// one taken after it.
#[derive(Debug)]
struct Held {
    disk: SimDisk,
    inode: Inode,
    number: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.locks.get(&self.inode) == Some(&self.number) {
            state.locks.remove(&self.inode);
        }
    }
}

/// The calls of [`Disk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Read,
    List,
    CreateDir,
    WriteNew,
    SyncFile,
    SyncDir,
    Rename,
    Remove,
    RemoveDir,
    Lock,
}

/// What is to go wrong, and when.
#[derive(Debug, Clone, Default)]
struct Script {
    calls: u64,
    crash_at: Option<u64>,
    crashed: bool,
    faults: Vec<Planned>,
}

#[derive(Clone, Copy, Debug)]
struct Planned {
    n: u64,
    fault: Fault,
    permanent: bool,
}

/// Why a call is not simply carried out.
#[derive(Clone, Copy, Debug)]
enum Halt {
    /// This is the call at which power is lost.
    PowerLost,
    /// Power was lost before.
    Dead,
    /// It is to go wrong in this way, which fits it.
    Fault(Fault),
}

impl Halt {
    fn error(self) -> io::Error {
        match self {
            Self::PowerLost | Self::Dead => io::Error::other("the disk has crashed"),
            Self::Fault(fault) => fault.error(),
        }
    }
}

impl Script {
    /// Counts a call and decides its fate.
    fn admit(&mut self, call: Call) -> Result<(), Halt> {
        let n = self.calls;
        self.calls += 1;
        if self.crashed {
            return Err(Halt::Dead);
        }
        if self.crash_at == Some(n) {
            self.crashed = true;
            return Err(Halt::PowerLost);
        }
        let mut due = self.faults.iter().filter_map(|plan| plan.strikes(n, call));
        due.next().map_or(Ok(()), |fault| Err(Halt::Fault(fault)))
    }

    /// Forgets everything but the count.
    fn heal(&mut self) {
        let calls = self.calls;
        *self = Self {
            calls,
            ..Self::default()
        };
    }
}

impl Planned {
    /// The fault that the n-th call meets, if this plan has one for it.
    fn strikes(&self, n: u64, call: Call) -> Option<Fault> {
        let fits = self.fault.fits(call);
        if n == self.n {
            Some(if fits { self.fault } else { Fault::Eio })
        } else {
            (self.permanent && n > self.n && fits).then_some(self.fault)
        }
    }
}

#[cfg(test)]
mod tests;
