//! Prints how long 2 MiB of the worst known input occupy a processor, for each parser.
#![allow(clippy::print_stdout, reason = "this is its purpose")]

fn main() {
    println!("| parser | ms of a processor for 2 MiB |\n|---|---:|");
    for (parser, time) in fuzz_targets::costs(2 << 20) {
        println!("| {parser} | {:.1} |", time.as_secs_f64() * 1000.0);
    }
}
