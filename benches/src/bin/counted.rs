//! The benchmark with a counting allocator.

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() {
    benches::counted_main(|| {
        let stats = ALLOCATOR.stats();
        (stats.allocations + stats.reallocations, stats.bytes_allocated)
    });
}
