//! The digest of a request.

use idempotent_core::RequestDigest;
use idempotent_http::digest::{BodyForm, RequestParts};

use crate::input::Input;

const FORMS: [BodyForm; 4] = [BodyForm::Raw, BodyForm::Json, BodyForm::Ignored, BodyForm::Custom];

#[derive(Clone, PartialEq)]
struct Request {
    form: BodyForm,
    method: String,
    path: String,
    query: String,
    content_type: Vec<u8>,
}

impl Request {
    fn digest<'a>(&self, chunks: impl IntoIterator<Item = &'a [u8]>) -> RequestDigest {
        let Self { form, method, path, query, content_type } = self;
        let content_encoding = None;
        let parts = RequestParts { method, path, query, content_type, content_encoding };
        let mut digester = parts.digester(*form);
        chunks.into_iter().for_each(|chunk| digester.update(chunk));
        digester.finish()
    }

    fn counts_its_content_type(&self) -> bool {
        matches!(self.form, BodyForm::Raw | BodyForm::Json)
    }
}

/// Input: the form of the body, the parts of the request, and a body, with its chunk sizes.
pub(crate) fn run(input: &[u8]) {
    let mut input = Input(input);
    let request = Request {
        form: FORMS[usize::from(input.byte() % 4)],
        method: input.text(),
        path: input.text(),
        query: input.text(),
        content_type: input.part().to_vec(),
    };
    let sizes = input.part();
    let body = input.0;
    let digest = request.digest([body]);
    assert_eq!(request.digest(chunks(body, sizes)), digest, "it depends on the chunks");
    assert_ne!(request.digest([body, b"\0"]), digest, "the end of the body does not count");
    for other in others(&request) {
        let same = !request.counts_its_content_type()
            && Request { content_type: request.content_type.clone(), ..other.clone() } == request;
        assert_eq!(other.digest([body]) == digest, same, "two requests have one digest");
    }
}

/// Consecutive chunks of these sizes, and the rest.
fn chunks<'a>(body: &'a [u8], sizes: &[u8]) -> Vec<&'a [u8]> {
    let (mut chunks, mut rest) = (Vec::new(), body);
    for size in sizes {
        let (chunk, next) = rest.split_at(rest.len().min(usize::from(*size)));
        chunks.push(chunk);
        rest = next;
    }
    chunks.push(rest);
    chunks
}

/// Requests that differ in one part, or in the place where one part ends and the next begins.
fn others(request: &Request) -> Vec<Request> {
    let form = FORMS[(FORMS.iter().position(|form| *form == request.form).unwrap() + 1) % 4];
    let with = |change: fn(&mut Request)| {
        let mut other = request.clone();
        change(&mut other);
        other
    };
    let mut others = vec![
        Request { form, ..request.clone() },
        with(|other| other.method.push('x')),
        with(|other| other.path.push('x')),
        with(|other| other.query.push('x')),
        with(|other| other.content_type.push(b'x')),
    ];
    let moved = with(|other| {
        if let Some(last) = other.path.pop() {
            other.query.insert(0, last);
        }
    });
    others.extend(Some(moved).filter(|moved| moved != request));
    others
}
