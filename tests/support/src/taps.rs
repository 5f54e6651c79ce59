//! Proxies that count their messages together, and stop at one of them.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

/// Proxies with one count. A message is what one read returns: what a side has sent before it waits
/// for the other side.
#[derive(Clone, Default)]
pub struct Taps(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    count: u32,
    plan: Option<Plan>,
    reached: Option<String>,
}

/// When to act, relative to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The message is not forwarded.
    Before,
    /// The message has been forwarded.
    After,
}

struct Plan {
    among: &'static str,
    number: u32,
    when: When,
    act: Box<dyn FnOnce() + Send>,
}

/// A proxy.
pub struct Tap {
    pub address: SocketAddr,
    target: Arc<Mutex<SocketAddr>>,
}

impl Tap {
    /// Forwards new connections to another server.
    pub fn set_target(&self, target: SocketAddr) {
        *self.target.lock().unwrap() = target;
    }
}

impl Taps {
    /// Starts a proxy in front of a server, which is named in reports. It runs until the process
    /// ends.
    #[must_use]
    pub fn in_front_of(&self, name: &'static str, target: SocketAddr) -> Tap {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let target = Arc::new(Mutex::new(target));
        let (taps, to) = (self.clone(), target.clone());
        thread::spawn(move || {
            for client in listener.incoming() {
                let target = *to.lock().unwrap();
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(target)) else {
                    continue; // Dropping the stream closes it.
                };
                taps.connect(name, &client, &server);
            }
        });
        Tap { address, target }
    }

    /// Counts messages from 1 on, and acts at one of them. Nothing passes while it acts. `among` is
    /// a part of the name of the messages that count, such as `from the bank`.
    pub fn act_at(
        &self,
        among: &'static str,
        number: u32,
        when: When,
        act: impl FnOnce() + Send + 'static,
    ) {
        let plan = Some(Plan { among, number, when, act: Box::new(act) });
        *self.state() = State { plan, ..State::default() };
    }

    /// Ends the count. Returns the name of the message at which it has acted.
    #[must_use]
    pub fn end_count(&self) -> Option<String> {
        std::mem::take(&mut *self.state()).reached
    }

    fn connect(&self, name: &'static str, client: &TcpStream, server: &TcpStream) {
        for stream in [client, server] {
            stream.set_nodelay(true).unwrap();
        }
        for (from, to, direction) in [(client, server, "to"), (server, client, "from")] {
            let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            let (taps, label) = (self.clone(), format!("{direction} the {name}"));
            thread::spawn(move || taps.forward(from, to, &label));
        }
    }

    fn forward(&self, mut from: TcpStream, mut to: TcpStream, label: &str) {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            if !self.pass(&mut to, &buffer[..read], label) {
                let _ = from.shutdown(Shutdown::Both);
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    }

    /// Forwards a message; returns whether the connection goes on.
    fn pass(&self, to: &mut TcpStream, message: &[u8], label: &str) -> bool {
        let mut state = self.state();
        let counts = state.plan.as_ref().is_some_and(|plan| label.contains(plan.among));
        state.count += u32::from(counts);
        let count = state.count;
        let plan = state.plan.take_if(|plan| counts && plan.number == count);
        let Some(Plan { number, when, act, .. }) = plan else {
            drop(state);
            return to.write_all(message).is_ok();
        };
        state.reached = Some(format!("{when:?} message {number}, {label}").to_lowercase());
        if when == When::After {
            let _ = to.write_all(message);
        }
        act();
        when == When::After
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
