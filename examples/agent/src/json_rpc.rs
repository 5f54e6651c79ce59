//! The protocol: JSON-RPC 2.0 in HTTP requests, as in the transport "Streamable HTTP" of MCP
//! (<https://modelcontextprotocol.io/specification/2025-11-25/basic/transports>).
//!
//! The tool is behind this middleware: it gets the `params` of `tools/call`, and responds with a
//! result. So the guard compares and records what belongs to the call, and each repetition gets the
//! recorded result in an envelope with an id of its own.

use actix_web::{
    Error, HttpRequest, HttpResponse,
    body::{self, BoxBody, MessageBody},
    dev::{Payload, ServiceRequest, ServiceResponse},
    error::ErrorInternalServerError,
    http::{
        Method, StatusCode,
        header::{self, HeaderValue},
    },
    middleware::Next,
    web::Bytes,
};
use serde_json::{Map, Value, json};

use crate::refund;

/// The versions of the protocol that this server speaks, the latest one last.
const VERSIONS: [&str; 2] = ["2025-06-18", "2025-11-25"];

/// An error of JSON-RPC, with its status.
struct RpcError {
    status: StatusCode,
    code: i32,
    message: String,
    data: Option<Value>,
}

impl RpcError {
    fn new(status: StatusCode, code: i32, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), data: None }
    }

    /// The response; without an id if that could not be read.
    fn response(self, id: Option<&Value>) -> HttpResponse {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let (Some(data), Value::Object(members)) = (self.data, &mut error) {
            members.insert("data".into(), data);
        }
        let mut envelope = json!({ "jsonrpc": "2.0", "error": error });
        if let (Some(id), Value::Object(members)) = (id, &mut envelope) {
            members.insert("id".into(), id.clone());
        }
        HttpResponse::build(self.status).json(envelope)
    }
}

/// A request, or a notification, which has no id.
struct Message {
    id: Option<Value>,
    method: String,
    params: Map<String, Value>,
}

impl Message {
    fn parse(body: &[u8]) -> Result<Self, RpcError> {
        let invalid = || RpcError::new(StatusCode::BAD_REQUEST, -32600, "Invalid request");
        let message: Value = serde_json::from_slice(body)
            .map_err(|_| RpcError::new(StatusCode::BAD_REQUEST, -32700, "Parse error"))?;
        let Value::Object(mut message) = message else { return Err(invalid()) };
        if message.get("jsonrpc") != Some(&json!("2.0")) {
            return Err(invalid());
        }
        let Some(Value::String(method)) = message.remove("method") else { return Err(invalid()) };
        let id = message.remove("id");
        // Only a notification has no id. An id is a text or an integer, and not null.
        let has_valid_id = match &id {
            None => method.starts_with("notifications/"),
            Some(id) => id.is_string() || id.is_i64() || id.is_u64(),
        };
        let params = match message.remove("params") {
            None => Map::new(),
            Some(Value::Object(params)) => params,
            Some(_) => return Err(invalid()),
        };
        if has_valid_id { Ok(Self { id, method, params }) } else { Err(invalid()) }
    }
}

/// Serves the protocol. Only calls of the tool reach the handler.
pub(crate) async fn serve(
    mut request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    if request.method() != Method::POST {
        return Ok(next.call(request).await?.map_into_boxed_body());
    }
    if let Err(error) = check_headers(request.request()) {
        return Ok(request.into_response(error.response(None)));
    }
    let body = request.extract::<Bytes>().await?;
    let Message { id, method, params } = match Message::parse(&body) {
        Ok(message) => message,
        Err(error) => return Ok(request.into_response(error.response(None))),
    };
    let Some(id) = id else {
        return Ok(request.into_response(HttpResponse::Accepted().finish()));
    };
    let response = match method.as_str() {
        "initialize" => envelope(&id, initialize(&params).to_string()),
        "ping" => envelope(&id, "{}".into()),
        "tools/list" => envelope(&id, json!({ "tools": [refund::description()] }).to_string()),
        "tools/call" if params.get("name") == Some(&json!(refund::NAME)) => {
            return call(request, &id, params, next).await;
        }
        "tools/call" => RpcError::new(StatusCode::OK, -32602, "Unknown tool").response(Some(&id)),
        _ => RpcError::new(StatusCode::OK, -32601, "Method not found").response(Some(&id)),
    };
    Ok(request.into_response(response))
}

/// A page in a browser must not reach a local server, and a client must speak a known version.
fn check_headers(request: &HttpRequest) -> Result<(), RpcError> {
    if request.headers().contains_key(header::ORIGIN) {
        return Err(RpcError::new(StatusCode::FORBIDDEN, -32600, "No origin is allowed"));
    }
    match request.headers().get("mcp-protocol-version").map(HeaderValue::to_str) {
        None => Ok(()),
        Some(Ok(version)) if VERSIONS.contains(&version) => Ok(()),
        Some(version) => Err(RpcError {
            data: Some(json!({ "supported": VERSIONS, "requested": version.unwrap_or_default() })),
            ..RpcError::new(StatusCode::BAD_REQUEST, -32022, "Unsupported protocol version")
        }),
    }
}

/// The client's version if this server speaks it, or else the latest one.
fn initialize(params: &Map<String, Value>) -> Value {
    let requested = params.get("protocolVersion").and_then(Value::as_str);
    let [.., latest] = VERSIONS;
    let version = requested.filter(|version| VERSIONS.contains(version)).unwrap_or(latest);
    json!({
        "protocolVersion": version,
        "capabilities": { "tools": {} },
        "serverInfo": { "name": "refunds", "version": env!("CARGO_PKG_VERSION") },
    })
}

/// Calls the tool with `params` as its body, and puts its result into an envelope.
async fn call(
    mut request: ServiceRequest,
    id: &Value,
    mut params: Map<String, Value>,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    // It differs when a call is repeated, such as by its progress token.
    params.remove("_meta");
    let params = Value::Object(params).to_string();
    let headers = request.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CONTENT_LENGTH, params.len().into());
    request.set_payload(Payload::from(Bytes::from(params)));
    let (request, response) = next.call(request).await?.into_parts();
    let (head, result) = response.into_parts();
    // Any other status is not that of a result, but of a caller who is not authenticated.
    if head.status() != StatusCode::OK {
        return Ok(ServiceResponse::new(request, head.set_body(result.boxed())));
    }
    let result = body::to_bytes(result).await.map_err(|error| {
        ErrorInternalServerError(format!("the result cannot be read: {}", error.into()))
    })?;
    let result = String::from_utf8_lossy(&result);
    Ok(ServiceResponse::new(request, head.set_body(BoxBody::new(wrapped(id, &result)))))
}

/// The response to a request with this id.
fn envelope(id: &Value, result: String) -> HttpResponse {
    HttpResponse::Ok().content_type("application/json").body(wrapped(id, &result))
}

/// The result keeps its bytes.
fn wrapped(id: &Value, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}
