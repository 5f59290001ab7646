package io.fluxgate.spring.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.fluxgate.testing.Repository;
import io.fluxgate.testing.Service;
import java.io.IOException;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.tools.JavaCompiler;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.springframework.beans.factory.config.YamlPropertiesFactoryBean;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.io.ByteArrayResource;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;

/** The snippets of clients/java/README.md. */
class ReadmeTest {
    /** Returns the code blocks of a language, without their indentation. */
    private static List<String> blocks(String language) throws IOException {
        String readme = Files.readString(Repository.root().resolve("clients/java/README.md"));
        Matcher fences = Pattern.compile("(?ms)^( *)```" + language + "\\n(.*?)^ *```$").matcher(readme);
        List<String> blocks = new ArrayList<>();
        while (fences.find()) {
            blocks.add(fences.group(2).replaceAll("(?m)^" + fences.group(1), ""));
        }
        return blocks;
    }

    @Test
    void inFiveMinutes() throws IOException {
        List<String> yaml = blocks("yaml");
        String rules = yaml.get(0).replace("127.0.0.1:8081", "${API}").replace("3/m", "3/h");
        YamlPropertiesFactoryBean application = new YamlPropertiesFactoryBean();
        application.setResources(new ByteArrayResource(yaml.get(1).getBytes(StandardCharsets.UTF_8)));
        Map<String, String> properties = new HashMap<>();
        application.getObject().forEach((name, value) -> properties.put((String) name, String.valueOf(value)));
        assertEquals("http://127.0.0.1:8081", properties.get("fluxgate.url"));
        try (Service service = Service.start(List.of(rules))) {
            properties.put("fluxgate.url", service.url());
            properties.put("fluxgate.deadline", "20s");
            try (Program program = Program.servlet(Main.class, properties)) {
                for (int status : new int[] {200, 200, 200, 429}) {
                    assertEquals(status, Limits.get(program.port(), "/", "X-User-Id", "ann").status());
                }
                assertEquals(200, Limits.get(program.port(), "/", "X-User-Id", "bob").status());
            }
        }
    }

    @Test
    void everySnippetCompiles(@TempDir Path folder) throws IOException {
        List<String> blocks = blocks("java");
        assertTrue(blocks.size() >= 3, () -> blocks.size() + " blocks");
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        for (String block : blocks) {
            // Statements are those of a program that has imported the client.
            String source = block.startsWith("import ")
                    ? block
                    : "import io.fluxgate.client.*;\nclass Snippet {\nlong export() { return 1; }\nvoid run() {\n" + block
                            + "}\n}\n";
            Matcher type = Pattern.compile("(?m)^class (\\w+)").matcher(source);
            assertTrue(type.find(), source);
            Path file = Files.writeString(folder.resolve(type.group(1) + ".java"), source);
            StringWriter errors = new StringWriter();
            List<String> options = List.of("-proc:none", "-d", folder.toString());
            boolean isCompiled = compiler.getTask(
                            errors,
                            null,
                            null,
                            options,
                            null,
                            compiler.getStandardFileManager(null, null, null).getJavaFileObjects(file))
                    .call();
            assertTrue(isCompiled, () -> source + errors);
        }
    }

    @Configuration
    @EnableAutoConfiguration
    @RestController
    static class Main {
        @GetMapping("/")
        String hello() {
            return "hello";
        }
    }
}
