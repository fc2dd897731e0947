// The sign-in, for a bridge that has an admin token. The token goes into one request and is kept nowhere; the session is a cookie
// that scripts cannot read.
import { useEffect, useRef, useState } from "preact/hooks";
import { signIn, why } from "./api";
import { Failed, Heading } from "./ui";

export function SignIn() {
  const [token, setToken] = useState("");
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []);
  const submit = async () => {
    if (!token || busy) return;
    setBusy(true);
    setError(null);
    try {
      await signIn(token);
    } catch (failure) {
      setError(why(failure));
      setBusy(false);
    }
  };
  return (
    <main id="main" class="signin" tabIndex={-1}>
      <form
        class="panel pad"
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        <Heading>Talaria</Heading>
        <p class="muted">This bridge asks for its admin token, the value of <code>admin.token</code>.</p>
        {/* For password managers. */}
        <input class="sr-only" type="text" autocomplete="username" value="admin" readOnly tabIndex={-1} aria-hidden="true" />
        <div class="field">
          <label for="token">Admin token</label>
          <input id="token" ref={field} type="password" autocomplete="current-password" value={token} maxLength={4096} onInput={(event) => setToken(event.currentTarget.value)} />
        </div>
        {error && <Failed what={error} />}
        <div class="row end">
          <button type="submit" class="primary" disabled={busy || !token}>
            {busy ? "Signing in …" : "Sign in"}
          </button>
        </div>
      </form>
    </main>
  );
}
