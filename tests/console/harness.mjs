// Runs journeys in one headless Chromium, each in a context of its own, and prints a line of JSON for each.
//
// A journey fails if it throws, and also if the page did what it must never do: an error in the console, a violation of the
// content security policy, a dialog, or a request to another host.

import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

import { chromium } from 'playwright-core';

const screenshots = process.env.SCREENSHOTS;

/** The limit of each wait. Far beyond what the slowest takes on a busy machine. */
const PATIENCE = 30_000;

/** What a browser says about answers that a journey asks for: a wrong token, a refused component, a bridge that is stopped. */
const EXPECTED = /Failed to load resource: (the server responded with a status of (400|401|403|404|409|422|429|503)|net::ERR_)/;

export class Journey {
  constructor(browser, name) {
    this.browser = browser;
    this.name = name;
    this.contexts = [];
    this.bridges = [];
    this.wrong = [];
    this.notes = [];
  }

  note(text) {
    this.notes.push(text);
  }

  async up(starting) {
    const bridge = await starting;
    this.bridges.push(bridge);
    return bridge;
  }

  async page(bridge, { path = '', width = 1360, height = 900, dark = false } = {}) {
    const context = await this.browser.newContext({
      viewport: { width, height },
      colorScheme: dark ? 'dark' : 'light',
      locale: 'en-GB',
      reducedMotion: 'reduce',
      permissions: ['clipboard-read', 'clipboard-write'],
    });
    context.setDefaultTimeout(PATIENCE);
    this.contexts.push(context);
    const page = await context.newPage();
    page.on('console', (message) => {
      if (message.type() === 'error' && !EXPECTED.test(message.text())) this.wrong.push(`console: ${message.text()}`);
    });
    page.on('pageerror', (error) => this.wrong.push(`error: ${error.message}`));
    page.on('dialog', (dialog) => {
      this.wrong.push(`dialog: ${dialog.message()}`);
      void dialog.dismiss();
    });
    page.on('request', (request) => {
      const { protocol, host } = new URL(request.url());
      if (!['data:', 'blob:'].includes(protocol) && host !== new URL(bridge.admin).host) this.wrong.push(`request to ${request.url()}`);
    });
    await page.addInitScript(() => {
      addEventListener('securitypolicyviolation', (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
    });
    await page.goto(`${bridge.admin.replace(/\/$/, '')}/${path}`);
    return page;
  }

  async picture(page, name) {
    await page.screenshot({ path: join(screenshots, `${name}.png`) });
  }
}

export async function run(journeys, { filter }) {
  await mkdir(screenshots, { recursive: true });
  const chosen = journeys.filter(({ name }) => !filter || name.includes(filter));
  if (chosen.length === 0) return 0;
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM,
    // In a container there is no namespace for the sandbox; the only pages are ours.
    args: ['--no-sandbox', '--disable-dev-shm-usage', '--font-render-hinting=none'],
  });
  let failed = 0;
  for (const { name, run: perform } of chosen) {
    const began = performance.now();
    const journey = new Journey(browser, name);
    let error = null;
    try {
      await perform(journey);
      if (journey.wrong.length > 0) error = `the page did what it must not:\n${journey.wrong.join('\n')}`;
    } catch (failure) {
      error = [failure.stack ?? String(failure), ...journey.wrong].join('\n');
    }
    const file = join(screenshots, `failed ${name.replaceAll(/[^a-z0-9]+/gi, ' ')}`);
    if (error) {
      failed += 1;
      for (const [at, context] of journey.contexts.entries()) {
        for (const page of context.pages()) await page.screenshot({ path: `${file} ${at}.png` }).catch(() => {});
      }
      await writeFile(`${file}.log`, journey.bridges.map((bridge) => bridge.log).join('\n---\n'));
    } else {
      await rm(`${file}.log`, { force: true });
      await rm(`${file} 0.png`, { force: true });
    }
    for (const context of journey.contexts) await context.close().catch(() => {});
    for (const bridge of journey.bridges) await bridge.stop();
    const note = journey.notes.join('; ') || null;
    process.stdout.write(`${JSON.stringify({ journey: name, seconds: (performance.now() - began) / 1000, note, error })}\n`);
  }
  await browser.close();
  return failed;
}

export function expect(is, says) {
  if (!is) throw new Error(`expected: ${says}`);
}

/** Waits until something holds in the page. */
export async function until(page, says, holds, argument) {
  try {
    await page.waitForFunction(holds, argument, { polling: 20 });
  } catch {
    throw new Error(`expected: ${says}; the page says:\n${(await page.locator('body').innerText()).slice(0, 3_000)}`);
  }
}
