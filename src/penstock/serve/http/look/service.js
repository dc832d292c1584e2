(() => {
  const form = document.querySelector("#try form"), answer = document.getElementById("answer");
  const button = form.querySelector("[type=submit]");
  const inputs = [...form.querySelectorAll("input")];
  const isNumber = /^-?\d+(\.\d+)?([eE][+-]?\d+)?$/;
  const isList = (text) => { try { return Array.isArray(JSON.parse(text)); } catch { return false; } };

  // A field as JSON. Numbers go as they were typed, since 64 bits do not fit into JavaScript's own; what is no value of
  // its kind goes as text, so that the service says what is wrong with it.
  const written = ({ value, dataset: { kind } }) => {
    const text = value.trim();
    if (text === "") return "null";
    if (kind === "number" && isNumber.test(text)) return text;
    if (kind === "bool" && ["true", "false"].includes(text)) return text;
    if (kind === "list" && isList(text)) return text;
    return JSON.stringify(kind === "text" ? value : text);
  };
  const body = () => {
    const fields = new Map(Object.entries(JSON.parse(form.dataset.row)).map(([n, v]) => [n, JSON.stringify(v)]));
    for (const input of inputs) fields.set(input.dataset.name, written(input));
    return `{"rows": [{${[...fields].map(([name, value]) => `${JSON.stringify(name)}: ${value}`).join(", ")}}]}`;
  };
  const show = (isWrong, ...parts) => {
    answer.classList.toggle("wrong", isWrong);
    answer.replaceChildren(...parts);
  };
  const element = (name, className, text = "") => {
    const made = document.createElement(name);
    made.className = className;
    made.textContent = text;
    return made;
  };
  const showProbability = (probability) => {
    const track = element("span", "track"), fill = element("span", "fill accent");
    fill.style.width = `${100 * probability}%`;
    track.append(fill);
    show(false, element("strong", "", `${(100 * probability).toFixed(2)} %`), ` probability ${Number(probability.toPrecision(6))}`, track);
  };
  const showError = (error) => {
    inputs.find((input) => input.dataset.name === error.field)?.classList.add("wrong");
    show(true, error.message.replace(/^row 0, /, ""));
  };

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    inputs.forEach((input) => input.classList.remove("wrong"));
    button.disabled = true;
    try {
      const headers = { "Content-Type": "application/json" };
      const found = await fetch("predict", { method: "POST", headers, body: body() });
      const said = await found.json();
      if (found.ok) showProbability(said.probabilities[0]); else showError(said.error);
    } catch (error) {
      show(true, `the service cannot be reached: ${error.message}`);
    }
    button.disabled = false;
  });
  form.addEventListener("reset", () => {
    inputs.forEach((input) => input.classList.remove("wrong"));
    show(false);
  });
})();
