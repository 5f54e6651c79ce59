//! `cargo bench -p benches`

fn main() {
    benches::main(env!("CARGO_BIN_EXE_counted"));
}
