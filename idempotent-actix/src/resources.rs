//! The resources of the application: their patterns and paths.

use std::mem::ManuallyDrop;

use actix_web::{HttpRequest, test::TestRequest};

/// The path of the resource with this name. A URL has an origin too, for which the `Host` of the
/// request does not serve: it may be empty or invalid.
pub(crate) fn path_of(
    request: &HttpRequest,
    name: &str,
    segments: &mut dyn Iterator<Item = String>,
) -> Option<String> {
    let url = with_local(|local| request.resource_map().url_for(local, name, segments));
    Some(url.ok()?.path().to_owned())
}

/// Calls a function with a request that no client has sent.
pub(crate) fn with_local<T>(function: impl FnOnce(&HttpRequest) -> T) -> T {
    LOCAL.with(|local| function(local))
}

thread_local! {
    /// A request with a valid host. Never dropped: the end of a thread is too late for its parts.
    static LOCAL: ManuallyDrop<HttpRequest> =
        ManuallyDrop::new(TestRequest::default().to_http_request());
}

/// A pattern with `x` for each dynamic segment.
pub(crate) fn placeholders(pattern: &str) -> String {
    let (mut path, mut depth) = (String::new(), 0u32);
    for character in pattern.chars() {
        match character {
            '{' => depth += 1,
            '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    path.push('x');
                }
            }
            character if depth == 0 => path.push(character),
            _ => {}
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::placeholders;

    #[test]
    fn each_dynamic_segment_is_one_placeholder() {
        for (pattern, path) in [
            ("/users", "/users"),
            ("/users/{id}/keys/{key}", "/users/x/keys/x"),
            (r"/users/{id:\d{2,4}}", "/users/x"),
        ] {
            assert_eq!(placeholders(pattern), path);
        }
    }
}
