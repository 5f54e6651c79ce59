//! A timer that ends a poll. The timeout of a poll is in milliseconds, which is too coarse for
//! thousands of arrivals per second.

pub(super) use self::platform::Timer;

#[cfg(target_os = "linux")]
mod platform {
    use std::{
        io,
        os::fd::{AsRawFd, OwnedFd},
        time::Duration,
    };

    use mio::{Interest, Registry, Token, unix::SourceFd};
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };

    const ZERO: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

    pub(in crate::load) struct Timer(OwnedFd);

    impl Timer {
        /// Events of the timer have a token that no connection has.
        pub(in crate::load) fn new(registry: &Registry) -> io::Result<Self> {
            let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK)?;
            let token = Token(usize::MAX);
            registry.register(&mut SourceFd(&timer.as_raw_fd()), token, Interest::READABLE)?;
            Ok(Self(timer))
        }

        /// Ends a poll after this time, which is not zero. Returns the timeout of the poll, which
        /// is longer.
        pub(in crate::load) fn start(&self, time: Duration) -> io::Result<Duration> {
            let value =
                Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
            let once = Itimerspec { it_interval: ZERO, it_value: value };
            timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once)?;
            Ok(time + Duration::from_secs(1))
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod platform {
    use std::{io, time::Duration};

    use mio::Registry;

    pub(in crate::load) struct Timer;

    impl Timer {
        pub(in crate::load) fn new(_: &Registry) -> io::Result<Self> {
            Ok(Self)
        }

        /// The timeout of the poll. The load does not sleep in the last millisecond.
        pub(in crate::load) fn start(&self, time: Duration) -> io::Result<Duration> {
            Ok(Duration::from_millis(time.as_millis() as u64))
        }
    }
}
