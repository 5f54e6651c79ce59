//! The fingerprint of `multipart` bodies.

use actix_web::test::TestRequest;
use idempotent_actix::fingerprint::multipart;

/// Input: two boundaries and a body, each on a line. In the body, `~` stands for the boundary.
pub(crate) fn run(input: &[u8]) {
    let mut lines = input.splitn(3, |byte| *byte == b'\n');
    let mut next = || lines.next().unwrap_or_default();
    let (one, other, body) = (boundary(next()), boundary(next()), next());
    let (first, second) = (filled(body, &one), filled(body, &other));
    let (parts, parts_of_other) = (parts(&first, &one), parts(&second, &other));
    let same = fingerprint(&one, &first) == fingerprint(&other, &second);
    if one == other {
        assert!(same);
    } else if same {
        assert!(parts.is_some() && parts == parts_of_other, "two bodies have one fingerprint");
        let lengths = parts.into_iter().flatten().filter(|part| states_its_length(part)).count();
        assert_eq!(lengths, 0, "a parser could use the length of a part");
    } else if let (Some(parts), Some(others)) = (parts, parts_of_other) {
        // A parser could find the boundary or a length within a part.
        let is_clear = |part: &Vec<u8>, boundary: &str| {
            !contains(part, boundary) && !contains(&part.to_ascii_lowercase(), "content-length")
        };
        let clear = parts.iter().all(|part| is_clear(part, &one))
            && others.iter().all(|part| is_clear(part, &other));
        assert!(parts != others || !clear, "the boundary counts");
    }
    every_byte_counts(&one, &first);
}

/// A valid boundary of these letters and digits, and at least one.
fn boundary(line: &[u8]) -> String {
    let allowed = line.iter().copied().map(char::from).filter(char::is_ascii_alphanumeric);
    std::iter::once('b').chain(allowed.take(20)).collect()
}

fn filled(body: &[u8], boundary: &str) -> Vec<u8> {
    body.split(|byte| *byte == b'~').collect::<Vec<_>>().join(boundary.as_bytes())
}

fn fingerprint(boundary: &str, body: &[u8]) -> [u8; 32] {
    let content_type = ("content-type", format!("multipart/form-data; boundary={boundary}"));
    multipart(&TestRequest::post().insert_header(content_type).to_http_request(), body)
}

/// The parts of a body that has the usual form: only boundaries at the beginning of a line count.
fn parts(body: &[u8], boundary: &str) -> Option<Vec<Vec<u8>>> {
    let body: String = body.iter().copied().map(char::from).collect();
    let (whole, delimiter) = (format!("\r\n{body}"), format!("\r\n--{boundary}"));
    let mut pieces = whole.split(&delimiter);
    let preamble = pieces.next()?;
    let mut parts: Vec<_> = pieces.collect();
    let end = parts.pop()?;
    if !preamble.is_empty() || !["--", "--\r\n"].contains(&end) {
        return None;
    }
    let part = |part: &str| {
        Some(part.strip_prefix("\r\n")?.chars().map(|c| u8::try_from(c).unwrap()).collect())
    };
    parts.into_iter().map(part).collect()
}

fn states_its_length(part: &[u8]) -> bool {
    let text = String::from_utf8_lossy(part).to_ascii_lowercase();
    text.split("\r\n\r\n").next().is_some_and(|headers| headers.contains("content-length"))
}

fn contains(part: &[u8], text: &str) -> bool {
    part.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Bodies that differ in a byte have different fingerprints.
fn every_byte_counts(boundary: &str, body: &[u8]) {
    let fingerprint_of = |body: &[u8]| fingerprint(boundary, body);
    let whole = fingerprint_of(body);
    let at = body.iter().fold(0, |sum, byte| sum + usize::from(*byte)) % (body.len() + 1);
    if let Some(byte) = body.get(at) {
        let mut changed = body.to_vec();
        changed[at] = byte.wrapping_add(1);
        assert_ne!(fingerprint_of(&changed), whole, "the byte {at} does not count");
    }
}
