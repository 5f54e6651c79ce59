//! Where processes run, and how much of a processor they took.

use std::{collections::HashMap, fs, process::Command, time::Duration};

/// How many processors there are.
pub(crate) fn count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A command that runs `program` on one processor, where there are two or more and `taskset` is there.
pub(crate) fn pinned(program: &str, processor: usize) -> Command {
    if !can_pin() {
        return Command::new(program);
    }
    let mut command = Command::new("taskset");
    command.args(["-c", &processor.to_string(), program]);
    command
}

/// Whether there are two processors, and processes can be pinned to one.
pub(crate) fn can_pin() -> bool {
    count() > 1 && Command::new("taskset").arg("--version").output().is_ok()
}

/// The time that a process, and all that it has started, has spent on a processor.
pub(crate) fn time_of_tree(root: u32) -> Duration {
    tree(root).into_iter().map(time).sum()
}

/// The time that one process has spent on a processor, in all of its threads.
pub(crate) fn time(process: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let time = |thread: fs::DirEntry| {
        let said = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        said.split(' ').next()?.parse().ok().map(Duration::from_nanos)
    };
    threads.filter_map(time).sum()
}

/// A process and all that it has started.
pub(crate) fn tree(root: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
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

/// The process that started this one.
pub(crate) fn parent(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name stands in parentheses and may hold anything.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}
/// The memory that a process has in use.
pub(crate) fn resident_bytes(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) * 1024
}
