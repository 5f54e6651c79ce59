//! A proxy that forwards requests to the emulator, and fails them as the service and the network
//! do.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Notify,
};

/// What happens to one request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The service refuses it: its capacity is used up.
    Throttled,
    /// The service refuses it: a transaction is changing the item.
    Conflict,
    /// The service refuses it: the credentials do not permit the action.
    Denied,
    /// The service fails before it executes the request.
    Unavailable,
    /// The service executes it, but responds with an internal error.
    FailedAfter,
    /// The connection is closed before the request arrives.
    NotDelivered,
    /// The service executes it, but the response is lost with the connection.
    LostResponse,
    /// The service executes it, but the response is cut off in the middle.
    CutResponse,
    /// The service executes it and never responds.
    NoResponse,
    /// The request waits until the gate is opened, and is executed then.
    Waits(Gate),
    /// The response has no `Date` header.
    NoDate,
}

impl Fault {
    /// The faults after which the client library or the store sends a request again.
    pub const TRANSIENT: [Self; 8] = [
        Self::Throttled,
        Self::Conflict,
        Self::Unavailable,
        Self::FailedAfter,
        Self::NotDelivered,
        Self::LostResponse,
        Self::CutResponse,
        Self::NoResponse,
    ];

    fn refusal(&self, action: &str) -> Option<(u16, String)> {
        let (status, code, message) = match self {
            Self::Throttled => {
                (400, "ProvisionedThroughputExceededException", "The level is exceeded".to_owned())
            }
            Self::Conflict => {
                (400, "TransactionConflictException", "Transaction is ongoing".to_owned())
            }
            Self::Denied => (
                400,
                "AccessDeniedException",
                format!("User: u is not authorized to perform: dynamodb:{action} on resource: r"),
            ),
            Self::Unavailable => (503, "ServiceUnavailable", "later".to_owned()),
            Self::FailedAfter => (500, "InternalServerError", "failed".to_owned()),
            Self::NotDelivered
            | Self::LostResponse
            | Self::CutResponse
            | Self::NoResponse
            | Self::Waits(_)
            | Self::NoDate => return None,
        };
        let code = format!("com.amazonaws.dynamodb.v20120810#{code}");
        Some((status, format!(r#"{{"__type":"{code}","message":"{message}"}}"#)))
    }
}

/// Holds a request until it is opened.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    arrived: Arc<Notify>,
    opened: Arc<Notify>,
}

impl Gate {
    /// Waits until a request waits at the gate.
    pub async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// Lets the request pass.
    pub fn open(&self) {
        self.opened.notify_one();
    }
}

type Plan = Box<dyn FnMut(u64, &str) -> Option<Fault> + Send>;

/// A proxy in front of the emulator.
pub struct FaultProxy {
    pub port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    upstream: u16,
    requests: AtomicU64,
    plan: Mutex<Plan>,
}

impl FaultProxy {
    /// Starts a proxy, as tasks of this runtime.
    pub async fn start(upstream: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let plan: Mutex<Plan> = Mutex::new(Box::new(|_, _| None));
        let shared = Arc::new(Shared { upstream, requests: AtomicU64::new(0), plan });
        let serving = shared.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let shared = serving.clone();
                tokio::spawn(async move { drop(shared.serve(client).await) });
            }
        });
        Self { port, shared }
    }

    /// Decides what happens to each request from now on, by its number from 0 on and its action,
    /// such as `PutItem`.
    pub fn plan(&self, plan: impl FnMut(u64, &str) -> Option<Fault> + Send + 'static) {
        let mut current = self.shared.plan.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.requests.store(0, Ordering::SeqCst);
        *current = Box::new(plan);
    }

    /// Fails no request from now on.
    pub fn clear(&self) {
        self.plan(|_, _| None);
    }

    /// How many requests have arrived since the plan was set.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::SeqCst)
    }
}

impl Shared {
    fn fault(&self, action: &str) -> Option<Fault> {
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.requests.fetch_add(1, Ordering::SeqCst);
        plan(number, action)
    }

    async fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        while let Some(request) = read_message(&mut client).await? {
            let action = action_of(&request);
            let fault = self.fault(&action);
            match fault {
                None => client.write_all(&self.forward(&request).await?).await?,
                Some(Fault::NotDelivered) => return Ok(()),
                Some(Fault::LostResponse) => {
                    self.forward(&request).await?;
                    return Ok(());
                }
                Some(Fault::CutResponse) => {
                    let response = self.forward(&request).await?;
                    client.write_all(&response[..response.len() - 2]).await?;
                    return Ok(());
                }
                Some(Fault::NoResponse) => {
                    self.forward(&request).await?;
                    // Until the client gives up.
                    client.read_u8().await?;
                    return Ok(());
                }
                Some(Fault::Waits(gate)) => {
                    gate.arrived.notify_one();
                    gate.opened.notified().await;
                    client.write_all(&self.forward(&request).await?).await?;
                }
                Some(Fault::NoDate) => {
                    let response = self.forward(&request).await?;
                    client.write_all(&without_date(&response)).await?;
                }
                Some(refused) => {
                    if matches!(refused, Fault::FailedAfter) {
                        self.forward(&request).await?;
                    }
                    let (status, body) = refused.refusal(&action).unwrap();
                    client.write_all(error(status, &body).as_bytes()).await?;
                }
            }
        }
        Ok(())
    }

    async fn forward(&self, request: &[u8]) -> io::Result<Vec<u8>> {
        let mut server = TcpStream::connect(("127.0.0.1", self.upstream)).await?;
        server.write_all(request).await?;
        read_message(&mut server).await?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

fn error(status: u16, body: &str) -> String {
    format!(
        "HTTP/1.1 {status} Error\r\ncontent-type: application/x-amz-json-1.0\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Reads one message with its body; `None` at the end of the connection.
async fn read_message(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut message = Vec::new();
    loop {
        if let Some(end) = message.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&message[..end]).to_ascii_lowercase();
            let length = header(&head, "content-length").and_then(|length| length.parse().ok());
            let whole = end + 4 + length.unwrap_or(0);
            if message.len() >= whole {
                return Ok(Some(message));
            }
        }
        if stream.read_buf(&mut message).await? == 0 {
            return Ok(None);
        }
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(known, _)| *known == name).map(|(_, value)| value.trim())
}

/// The action of a request: `PutItem` of `X-Amz-Target: DynamoDB_20120810.PutItem`.
fn action_of(request: &[u8]) -> String {
    let head = String::from_utf8_lossy(request);
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    let target = lines.find(|(name, _)| name.eq_ignore_ascii_case("x-amz-target"));
    target.and_then(|(_, value)| value.trim().split('.').nth(1)).unwrap_or_default().to_owned()
}

fn without_date(response: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(response);
    let lines = text.split_inclusive('\n');
    lines.filter(|line| !line.to_ascii_lowercase().starts_with("date:")).collect::<String>().into()
}
