//! Pins processes and measures their processor time.

use std::{collections::HashMap, fs, process::Command, time::Duration};

/// The number of processors.
pub(crate) fn count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A command that runs `program` on one processor, if there are two or more and `taskset` is
/// installed.
pub(crate) fn pinned(program: &str, processor: usize) -> Command {
    if !can_pin() {
        return Command::new(program);
    }
    let mut command = Command::new("taskset");
    command.args(["-c", &processor.to_string(), program]);
    command
}

/// Whether there are at least two processors and processes can be pinned to one of them.
pub(crate) fn can_pin() -> bool {
    count() > 1 && Command::new("taskset").arg("--version").output().is_ok()
}

/// The processor time of a process and its descendants.
pub(crate) fn time_of_tree(root: u32) -> Duration {
    tree(root).into_iter().map(time).sum()
}

/// The processor time of all threads of a process.
pub(crate) fn time(process: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let time = |thread: fs::DirEntry| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
    };
    threads.filter_map(time).sum()
}

/// A process and its descendants.
pub(crate) fn tree(root: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if let Some(parent) = parent(process) {
            children.entry(parent).or_default().push(process);
        }
    }
    let (mut found, mut next) = (vec![root], 0);
    while let Some(process) = found.get(next).copied() {
        found.extend(children.remove(&process).unwrap_or_default());
        next += 1;
    }
    found
}

/// The parent of a process.
pub(crate) fn parent(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The process name is in parentheses and may itself contain spaces and parentheses.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// The resident memory of a process.
pub(crate) fn resident_bytes(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0)
        * 1024
}
