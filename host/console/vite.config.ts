// One script and one style sheet with fixed names, so that the binary embeds them and a build of the same sources is the
// same bytes. Nothing is inlined: the server's content security policy has no `unsafe-inline`.
import { defineConfig } from "vite";

export default defineConfig({
  base: "./",
  esbuild: { jsx: "automatic", jsxImportSource: "preact", legalComments: "none" },
  build: {
    outDir: "dist",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    modulePreload: false,
    target: "es2022",
    rollupOptions: {
      output: {
        entryFileNames: "assets/app.js",
        assetFileNames: (asset) => (asset.names.some((name) => name.endsWith(".css")) ? "assets/app.css" : "assets/[name][extname]"),
        inlineDynamicImports: true,
      },
    },
  },
  // For work on the console against a running bridge: `npm run dev`.
  server: {
    proxy: Object.fromEntries(
      ["/status", "/stats", "/turns", "/events", "/config", "/executors", "/audit", "/log", "/session", "/a2a", "/readyz"].map((path) => [
        path,
        "http://127.0.0.1:8001",
      ]),
    ),
  },
});
