import { useData } from 'vitepress';
import { defineComponent, h, onMounted, ref, watch } from 'vue';

let drawings = 0;

/** Draws a diagram in the colours of the page; until then, and where scripts do not run, its source is shown. */
export const MermaidDiagram = defineComponent({
  props: { source: { type: String, required: true } },
  setup: props => {
    const { isDark } = useData();
    const text = decodeURIComponent(props.source);
    const drawing = ref<string>();

    async function draw(): Promise<void> {
      const dark = isDark.value;
      const { default: mermaid } = await import('mermaid');
      mermaid.initialize({
        startOnLoad: false,
        suppressErrorRendering: true,
        theme: dark ? 'dark' : 'neutral',
        // At its own size a diagram stays readable; a narrow page scrolls it.
        fontSize: 14,
        themeVariables: { fontSize: '14px' },
        sequence: { useMaxWidth: false, width: 110, actorMargin: 20, diagramMarginX: 8 },
        state: { useMaxWidth: false, nodeSpacing: 24 },
      });
      const { svg } = await mermaid.render(`diagram-${++drawings}`, text);
      if (dark === isDark.value) drawing.value = svg;
    }

    onMounted(() => {
      watch(isDark, () => void draw(), { immediate: true });
    });
    return () =>
      drawing.value === undefined
        ? h('pre', { class: 'diagram' }, text)
        : h('div', { class: 'diagram', tabindex: 0, innerHTML: drawing.value });
  },
});
