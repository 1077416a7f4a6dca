// Is a report accessible, narrow enough for a phone and free of the network? axe-core in headless Chromium.
//
// Time:         a few seconds a file. No GPU, no network but for the npm packages, which go to a folder outside the checkout.
// Usage:        npm install --prefix /tmp/axe axe-core puppeteer-core
//               NODE_PATH=/tmp/axe/node_modules node scripts/check_report.cjs runs/smoke/<run id>/report.html
// You will see: one line a width and color scheme. Exit code 1 for a serious or critical fault, sideways scrolling, or a
//               request to anything but the file.
const path = require('path');
const axe = require('axe-core');
const puppeteer = require('puppeteer-core');

async function check(browser, file, width, scheme) {
  const page = await browser.newPage();
  const outside = [];
  page.on('request', (request) => { if (!request.url().startsWith('file:')) outside.push(request.url()); });
  await page.setViewport({ width, height: 900 });
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
  await page.goto('file://' + path.resolve(file));
  await page.evaluate(() => document.querySelectorAll('details').forEach((part) => { part.open = true; }));
  const beyond = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  await page.addScriptTag({ content: axe.source });
  const found = await page.evaluate(() => axe.run());
  await page.close();
  const serious = found.violations.filter((fault) => ['serious', 'critical'].includes(fault.impact));
  const told = found.violations.map((fault) => `${fault.impact} ${fault.id} (${fault.nodes.length})`);
  console.log(`${file} ${width}px ${scheme}: ${found.passes.length} rules passed, ${told.length} violated ${told.join(', ')}; ` +
    `${Math.max(0, beyond)} px too wide; ${outside.length} requests outside`);
  return serious.length === 0 && beyond <= 0 && outside.length === 0;
}

(async () => {
  const browser = await puppeteer.launch({ executablePath: process.env.CHROMIUM || '/usr/bin/chromium', args: ['--no-sandbox'] });
  let good = true;
  for (const file of process.argv.slice(2)) {
    for (const width of [1280, 390]) {
      for (const scheme of ['light', 'dark']) good = await check(browser, file, width, scheme) && good;
    }
  }
  await browser.close();
  process.exit(good ? 0 : 1);
})();
