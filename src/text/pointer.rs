//! JSON pointers (RFC 6901): `/metadata/labels/app.kubernetes.io~1name`.

/// One reference token with `~` and `/` escaped.
pub fn escape(token: &str) -> String {
    token.replace('~', "~0").replace('/', "~1")
}

/// The text of an escaped reference token.
pub fn unescape(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

/// Appends a reference token to a pointer.
pub fn push(pointer: &mut String, token: &str) {
    pointer.push('/');
    if token.contains(['~', '/']) {
        pointer.push_str(&escape(token));
    } else {
        pointer.push_str(token);
    }
}

/// The pointer with one more reference token.
pub fn join(pointer: &str, token: &str) -> String {
    format!("{pointer}/{}", escape(token))
}

/// The reference tokens of a pointer, unescaped. The empty pointer has none.
pub fn tokens(pointer: &str) -> impl Iterator<Item = String> {
    pointer.split('/').skip(1).map(unescape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_escaping() {
        for (token, escaped) in
            [("a/b", "a~1b"), ("m~n", "m~0n"), ("~1", "~01"), ("", ""), ("nvidia.com/gpu", "nvidia.com~1gpu")]
        {
            assert_eq!(escape(token), escaped);
            assert_eq!(unescape(escaped), token);
        }
    }

    #[test]
    fn pointers_are_made_of_tokens() {
        let mut pointer = join("", "metadata");
        push(&mut pointer, "a/b~c");
        assert_eq!(pointer, "/metadata/a~1b~0c");
        assert_eq!(tokens(&pointer).collect::<Vec<_>>(), ["metadata", "a/b~c"]);
        assert_eq!(tokens("").count(), 0);
        assert_eq!(tokens("/").collect::<Vec<_>>(), [""]);
    }
}
