// stripe-stateful-mock on a free port of this machine alone, which is printed; until stdin closes.
const payments = require("stripe-stateful-mock");
const server = payments.createExpressApp().listen(0, "127.0.0.1", () => {
  console.log(JSON.stringify({ url: `http://127.0.0.1:${server.address().port}` }));
});
process.stdin.resume().on("end", () => process.exit(0));
