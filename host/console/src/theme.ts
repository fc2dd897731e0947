// Light or dark: what the system says, until the reader chooses.
import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const KEY = "talaria.theme";
const wanted = matchMedia("(prefers-color-scheme: dark)");
const systemIsDark = signal(wanted.matches);
wanted.addEventListener("change", (event) => {
  systemIsDark.value = event.matches;
});

function kept(): Theme {
  try {
    const value = localStorage.getItem(KEY);
    return value === "light" || value === "dark" ? value : "system";
  } catch {
    return "system";
  }
}

export const theme = signal<Theme>(kept());
/** What is shown; charts are drawn again when it changes. */
export const isDark = signal(false);

effect(() => {
  isDark.value = theme.value === "dark" || (theme.value === "system" && systemIsDark.value);
  document.documentElement.dataset["theme"] = isDark.value ? "dark" : "light";
  try {
    if (theme.value === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, theme.value);
  } catch {
    // Not kept, then.
  }
});

export function turnTheme(): void {
  theme.value = isDark.value ? "light" : "dark";
}
