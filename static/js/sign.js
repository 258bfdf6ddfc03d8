// Sign: <button data-sign="options as JSON"> asks the person's own key to sign before its form is sent,
// and puts what the key said into the form's field "signature". Without scripts no key can be asked:
// the form is sent without, and the desk refuses it in words.
import { say, whisper } from "./say.js";

const bytes = (text) =>
  Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (one) => one.charCodeAt(0));
const text = (buffer) =>
  btoa(String.fromCharCode(...new Uint8Array(buffer)))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");

async function signed(options) {
  const found = await navigator.credentials.get({
    publicKey: {
      ...options,
      challenge: bytes(options.challenge),
      allowCredentials: options.allowCredentials.map((one) => ({ ...one, id: bytes(one.id) })),
    },
  });
  const { clientDataJSON, authenticatorData, signature } = found.response;
  return {
    id: found.id,
    rawId: text(found.rawId),
    type: found.type,
    response: {
      clientDataJSON: text(clientDataJSON),
      authenticatorData: text(authenticatorData),
      signature: text(signature),
    },
    clientExtensionResults: {},
  };
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("button[data-sign]");
  if (!button?.form || button.disabled) return;
  if (!button.form.reportValidity()) return event.preventDefault();
  event.preventDefault();
  if (!window.PublicKeyCredential) return say("This browser cannot ask a security key to sign.");
  whisper("Your key is asked to sign.");
  try {
    button.form.elements.signature.value = JSON.stringify(await signed(JSON.parse(button.dataset.sign)));
  } catch (wrong) {
    say(`Nothing was sent: your key did not sign (${wrong.name}).`);
    return;
  }
  if (button.isConnected) button.form.requestSubmit(button);
});
